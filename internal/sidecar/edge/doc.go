// Package edge is the one way in for requests of clients.
//
// A request passes these stages, in this order: it is admitted by origin, host and path;
// its caller is named; its front end looks at its head; its session is located; it is given a budget; its body is read and
// scanned, once; what it goes on with is located; it is authorized; the front end of its
// path answers it; its record is closed. A stage that refuses a request answers it, and no
// later stage sees it. Nothing outside this package reads a client's body or makes a
// caller.
package edge
