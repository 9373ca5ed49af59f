// Package remote connects to MCP servers that speak HTTP themselves, on a port of the same pod.
//
// A connection looks like a child process: it is a mux.Server, which is written to and read from.
// Stateful is a session with a server of Streamable HTTP. Stateless is for servers of Streamable
// HTTP that keep nothing between two requests (revision 2026-07-28). SSE is a session with a server
// of HTTP+SSE, the transport of revision 2024-11-05.
package remote
