// Package mux lets many callers use one server at the same time.
//
// A Conn multiplexes the requests of the callers over one connection. A Supervisor starts the process
// behind it when a caller needs one and none runs. A BackOff delays starts after failures. An
// Attribution finds the call that a message belongs to, if the message does not name one.
package mux
