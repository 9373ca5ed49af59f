// Package swarm has many MCP clients use one server at the same time, and checks every answer that they get.
//
// The server is test/servers/echo. Its tool tick says which process answers, and how many calls of tick that process has
// executed. So a client notices an answer of another session, a call that was executed twice, and a session that has
// lost its memory.
//
// Clients are of several makes. One speaks HTTP by itself (raw.go), the others are of official SDKs: for Go (gosdk.go) and
// both majors for TypeScript (node.go and the directory typescript). All are checked by the same code (check.go). A
// witness sees the HTTP exchanges of an SDK, so what went wrong is judged by what the server did, and not by
// what the SDK makes of it (rules.go).
package swarm
