package edge

import "net/http"

// anything is the Locator and the Authorizer of a Door that has none. It lets every request
// pass.
type anything struct{}

func (anything) BySession(http.ResponseWriter, *Request) bool { return true }

func (anything) ByState(http.ResponseWriter, *Request) bool { return true }

func (anything) Authorize(*Request) *Refusal { return nil }
