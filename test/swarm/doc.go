// Package swarm has many MCP clients use one server at the same time, and checks every answer that they get.
//
// The server is test/servers/echo. Its tool tick says which process answers, and how many calls of tick that process has
// executed. So a client notices an answer of another session, a call that was executed twice, and a session that has
// lost its memory.
package swarm
