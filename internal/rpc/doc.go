// Package rpc reads and edits single JSON-RPC messages without decoding their
// payloads, and frames them for standard input and output and for event streams.
//
// The bridge forwards bytes: what a client wrote is what the server reads, but for
// the few ranges that Edits replace. That only is safe if the bridge and the
// server read the same message out of the same bytes, so Scan checks the whole
// syntax and refuses what parsers are known to disagree on.
package rpc
