package mux

// Attribution finds the call that a message of a server belongs to, if the message does not name one.
// Log messages do not. It knows the numbers of the calls that the server works on. The zero value has
// none. Its user must guard it.
//
// A cancelled call counts until the server answers it, because the server may still write about it.
type Attribution struct {
	open map[uint64]struct{}
	full bool   // open had too many calls once, so that it cannot be relied on
	only uint64 // the only call that the server has worked on since that call began, or 0
}

// mostOpen bounds the calls that a server never answers. Many servers do not answer cancelled calls.
const mostOpen = 1 << 14

// Begin records that the adapter sends the server a call.
func (a *Attribution) Begin(number uint64) {
	a.only = 0
	if len(a.open) == mostOpen {
		a.full, a.open = true, nil
	}
	if a.full {
		return
	}
	if a.open == nil {
		a.open = map[uint64]struct{}{}
	}
	if len(a.open) == 0 {
		a.only = number
	}
	a.open[number] = struct{}{}
}

// End records that the server no longer works on a call, or never got it. It ignores unknown numbers.
func (a *Attribution) End(number uint64) {
	delete(a.open, number)
	if a.only == number {
		a.only = 0
	}
}

// Only returns the call that a message must belong to, because the server has worked on no other one
// since that call began. It returns 0 if there is no such call.
func (a *Attribution) Only() uint64 { return a.only }
