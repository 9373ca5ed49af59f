// Package mcpprobe asks an MCP server what it is and what it offers, through the
// client of the official Go SDK, and returns a Catalog.
//
//	catalog, err := mcpprobe.Probe(ctx, mcpprobe.HTTP(url, header), mcpprobe.Options{})
//
// is the whole of it for a server at an address. Who stays connected, to follow
// what changes and to see that the server is alive, uses a Session:
//
//	session, err := mcpprobe.Connect(ctx, mcpprobe.Pipes(stdout, stdin), mcpprobe.Options{})
//	catalog, err := session.Catalog(ctx)
//	<-session.Changed() // ask for the catalogue again
//
// A server is taken for hostile. The SDK reads replies without a bound and decodes
// them into Go values, which can be fifty times as large, so a guard stands between
// the SDK and the wire. It sees every message in both directions, bounds it, keeps
// the payload of a list for this package and hands an empty one to the SDK. That
// also keeps schemas as the server wrote them: the SDK's types would drop members
// that they do not know and round large numbers.
//
// Some servers list more tools to clients that can do more. So every probe declares
// the same full set of capabilities (sampling, elicitation, roots) and then declines
// what it is asked: elicitation with the action "decline", sampling with the error
// that stands for a user who said no, anything unknown with -32601. Asked for roots
// it says that there are none, which is true and, unlike an error, is an answer that
// servers go on from.
//
// Every error of Connect, Probe and a Session's methods is an *Error, whose Class
// tells a server that is broken from one that is busy, guarded or out of reach.
package mcpprobe
