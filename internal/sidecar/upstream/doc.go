// Package upstream stands in front of MCP servers that speak HTTP themselves, on a
// port of the same pod.
//
// Proxy is for servers with Streamable HTTP: it forwards requests and keeps the
// books on sessions. SSE is for servers with the older HTTP+SSE transport: it makes
// a session.Session of a connection to one, for the Streamable HTTP front end.
//
// Where clients and server have no revision in common somebody else translates, for
// whom a server is something that is written to and read from, as a process is. That
// is what SSE, Legacy and Modern dial: the last two to servers with Streamable HTTP,
// with sessions and without.
//
// Proxy is not made of httputil.ReverseProxy. Bodies are read and checked before
// anything is sent, the answer to initialize is read before its status goes out,
// comments are put between the events of a silent stream, every write has a
// deadline of its own, and informational answers, upgrades and trailers are not
// wanted: of what ReverseProxy does there remained the removal of hop-by-hop
// headers.
package upstream
