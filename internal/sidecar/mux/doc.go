// Package mux has what servers have in common that many callers use at the same time.
//
// A Conn multiplexes the requests of the callers over one connection. A Supervisor starts the
// process behind it when a caller first needs one, and another when it has ended. A BackOff keeps
// starts that fail apart. Supervisor and BackOff know nothing of messages. An Attribution tells
// which call a message belongs to that does not say so.
package mux
