// Package mcpprobe asks an MCP server what it is and what it offers, through the
// client of the official Go SDK, and returns a Catalog.
//
//	catalog, err := mcpprobe.Probe(ctx, mcpprobe.HTTP(url, header), mcpprobe.Options{})
//
// probes a server at an address. A caller that stays connected, to follow changes and to
// see that the server is alive, uses a Session:
//
//	session, err := mcpprobe.Connect(ctx, mcpprobe.Pipes(stdout, stdin), mcpprobe.Options{})
//	catalog, err := session.Catalog(ctx)
//	<-session.Changed() // ask for the catalog again
//
// The package takes every server for hostile. The SDK reads replies without a bound and
// decodes them into Go values, which can be fifty times as large. So a guard stands
// between the SDK and the wire. It sees every message in both directions, bounds it,
// keeps the payload of a list for this package and hands an empty one to the SDK. That
// also keeps schemas as the server wrote them: the SDK's types would drop members that
// they do not know and round large numbers.
//
// Some servers list more tools to clients with more capabilities. So every probe declares
// the same full set of capabilities (sampling, elicitation, roots), and then declines
// each request of the server: elicitation with the action "decline", sampling with the
// error for a user who refuses, anything unknown with -32601. To a request for roots it
// answers with an empty list, because servers stop at an error.
//
// Every error of Connect, Probe and a Session's methods is an *Error, whose Class tells a
// broken server from a busy one, one that wants credentials, and one out of reach.
package mcpprobe
