// Package proxy forwards the requests of clients to an MCP server that speaks Streamable HTTP, on a
// port of the same pod. It is for clients that speak a revision of the server's own.
//
// A Proxy is not made of httputil.ReverseProxy. It reads and checks bodies before it sends anything.
// It reads the answer to initialize before it passes the status on. It puts comments between the
// events of a silent stream, and gives every write a deadline of its own. It passes on no
// informational answers, upgrades or trailers. What remains of ReverseProxy is the removal of
// hop-by-hop headers.
package proxy
