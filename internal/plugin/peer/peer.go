// Package peer finds out whether a connection within this machine comes from a process of the user who runs
// this one.
package peer
