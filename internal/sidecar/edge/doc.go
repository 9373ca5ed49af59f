// Package edge is the one way in for requests of clients.
//
// A request passes these stages, in this order:
//
//  1. The Door finds the route by the path. Other paths go to Options.Elsewhere.
//  2. Admit checks host and origin.
//  3. Authenticate names the caller.
//  4. Locate.BySession finds the instance with the session.
//  5. The route's Check looks at the headers.
//  6. The Door takes room for the body from the budget, reads the body, and scans it once.
//  7. Locate.ByState finds the instance with the task or state that the message names, and Locate.ByGroup the one
//     that keeps state for the caller.
//  8. Authorize decides whether the caller may do what the messages ask for.
//  9. The route's Serve answers.
//  10. The Door closes the record.
//
// A request other than POST skips stages 6 and 7. A stage that refuses a request answers it, and no later
// stage sees it. Nothing outside this package reads a client's body or makes a caller.
package edge
