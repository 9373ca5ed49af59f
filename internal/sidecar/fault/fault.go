// Package fault has the errors that one package gives and another recognizes. A package that
// only recognizes an error need not know which package gives it.
//
// ErrDraining, ErrBusy and ErrFull are kinds, to be found with errors.Is. Brief and ForClients
// give the words of an error that others than its cause's owner may read.
package fault

import "errors"

var (
	// ErrDraining says that the instance takes nothing new any more.
	ErrDraining = errors.New("this instance is going away")
	// ErrBusy says that a message was not taken, and may be later: a limit is reached.
	ErrBusy = errors.New("the server is busy")
	// ErrFull says that no process was started, and one may be later: others have all that
	// there may be.
	ErrFull = errors.New("as many server processes run as may run")
)

// Busy returns an ErrBusy with words that say which limit is reached.
func Busy(words string) error { return &wordedError{words, ErrBusy} }

// wordedError is an error in other words than those of its cause.
type wordedError struct {
	words string
	cause error
}

func (e *wordedError) Error() string { return e.words }

func (e *wordedError) Unwrap() error { return e.cause }

// Discreet returns an error with words that hold no secret. The cause stays for errors.As.
func Discreet(words string, cause error) error { return &discreetError{wordedError{words, cause}} }

type discreetError struct{ wordedError }

// Brief is for logs, which have the rest already.
func (e *discreetError) Brief() string { return e.words }

// briefError is an error with words that may be secret, such as what a server wrote to its
// standard error. Brief has none of these.
type briefError interface {
	error
	Brief() string
}

// Brief is what all may know of an error. What a server wrote to its standard
// error may be secret: it is in the log already, line by line.
func Brief(err error) string {
	if brief, ok := errors.AsType[briefError](err); ok {
		return brief.Brief()
	}
	return err.Error()
}

// ForClients returns the error as clients may read it: how a process ended, and nothing
// of what it wrote. Stack traces hold tokens and connection strings, and a client can
// often make a process crash. The cause stays for errors.As.
func ForClients(err error) error {
	if _, ok := errors.AsType[*discreetError](err); ok {
		return err
	}
	if brief, ok := errors.AsType[briefError](err); ok {
		return Discreet(brief.Brief(), brief)
	}
	return err
}
