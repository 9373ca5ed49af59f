package mux

// Attribution tells which call a message of a server belongs to, where the message itself does
// not say so. Log messages do not. It knows the calls that the server works on, by their numbers.
// The zero value has none. The mutex of the code that uses it guards it.
//
// A call that a client has cancelled counts until the server answers it: until then the server may
// still write about it.
type Attribution struct {
	open map[uint64]struct{}
	full bool   // open had no room for a call, so that its end is not noticed
	only uint64 // the call that the server has worked on alone since the call began, or 0
}

// mostOpen bounds the calls that a server never answers, as many do not answer cancelled ones.
const mostOpen = 1 << 14

// Begin notes that the server gets a call.
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

// End notes that the server works on a call no more, or never got it. Numbers of no call
// are ignored.
func (a *Attribution) End(number uint64) {
	delete(a.open, number)
	if a.only == number {
		a.only = 0
	}
}

// Only is the call that a message must belong to: the server has worked on no other call
// since this one began. It is 0 if there is no such call.
func (a *Attribution) Only() uint64 { return a.only }
