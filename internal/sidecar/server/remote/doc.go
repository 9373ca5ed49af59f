// Package remote connects to MCP servers that speak HTTP themselves, on a port of the same pod.
//
// Stateful is a session with a server of Streamable HTTP. Stateless is for servers of Streamable
// HTTP that keep nothing between two requests (revision 2026-07-28). SSE is a session with a server
// of HTTP+SSE, the transport of revision 2024-11-05.
//
// Each of them is a mux.Server: to the code that uses it, it looks like a child process. None of
// them has a mux.Conn, because the code above has one, or a session.Session. That code gives every
// request in flight an id of its own, keeps the callers that wait, and answers them when the
// connection ends. A connection of this package does not look answers up: an answer comes in the
// response to the POST that carried the request. It knows requests by their ids only to end the
// POST of one that is cancelled.
package remote
