package edge

import "net/http"

// Here is the Locator of an instance that has no peers: it answers everything.
type Here struct{}

// BySession lets the request pass.
func (Here) BySession(http.ResponseWriter, *Request) bool { return true }

// ByState lets the request pass.
func (Here) ByState(http.ResponseWriter, *Request) bool { return true }

// Everything is the Authorizer that allows everything.
type Everything struct{}

// Authorize lets the request pass.
func (Everything) Authorize(*Request) *Refusal { return nil }

// Reserve is the Budget of bodies that are bounded one by one.
func (l BodyLimits) Reserve(*Request) (BodyLimits, *Refusal) { return l, nil }

// Grow lets every body grow.
func (BodyLimits) Grow(*Request, int) *Refusal { return nil }

// Slow lets every body take its time.
func (BodyLimits) Slow(*Request) bool { return true }

// Filled does nothing.
func (BodyLimits) Filled(*Request) {}

// Release gives nothing back.
func (BodyLimits) Release(*Request) {}
