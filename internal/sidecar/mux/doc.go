// Package mux has what servers have in common that many callers use at the same time.
//
// A Conn multiplexes the requests of the callers over one connection.
package mux
