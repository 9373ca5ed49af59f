// Package fault has the errors that one package returns and another recognizes. A package that
// recognizes an error need not import the package that returns it.
//
// Find ErrDraining, ErrBusy and ErrFull with errors.Is. Brief and ForClients remove from an error what
// logs and clients must not see.
package fault

import "errors"

var (
	// ErrDraining says that the instance accepts no new work.
	ErrDraining = errors.New("this instance is going away")
	// ErrBusy says that a limit is reached, so that the server did not get a message. A later try may
	// succeed.
	ErrBusy = errors.New("the server is busy")
	// ErrFull says that as many processes run as may run, so that no other one started. A later try may
	// succeed.
	ErrFull = errors.New("as many server processes run as may run")
	// ErrMoved says that another instance serves the client from now on.
	ErrMoved = errors.New("another instance serves this client now: send the request again")
)

// IsLimit says whether an error says nothing of the server: the adapter has reached a limit, or goes
// away.
func IsLimit(err error) bool {
	return errors.Is(err, ErrDraining) || errors.Is(err, ErrBusy) || errors.Is(err, ErrFull)
}

// Busy returns an ErrBusy with words that say which limit is reached.
func Busy(words string) error { return &wordedError{words, ErrBusy} }

// Caused returns err with its own text, in which errors.Is also finds the cause.
func Caused(err, cause error) error { return &causedError{err, cause} }

type causedError struct{ err, cause error }

func (e *causedError) Error() string { return e.err.Error() }

func (e *causedError) Unwrap() []error { return []error{e.err, e.cause} }

// wordedError is an error with another text than its cause.
type wordedError struct {
	words string
	cause error
}

func (e *wordedError) Error() string { return e.words }

func (e *wordedError) Unwrap() error { return e.cause }

// Discreet returns an error with a text that holds no secret. errors.As finds the cause.
func Discreet(words string, cause error) error { return &discreetError{wordedError{words, cause}} }

type discreetError struct{ wordedError }

// Brief returns the text for logs.
func (e *discreetError) Brief() string { return e.words }

// briefError is an error whose text may hold secrets, such as what a server wrote to standard error.
// The result of its method Brief holds none.
type briefError interface {
	error
	Brief() string
}

// Brief returns the text of an error without what a server wrote, which may be secret. The log has each
// line of a server's standard error already.
func Brief(err error) string {
	if brief, ok := errors.AsType[briefError](err); ok {
		return brief.Brief()
	}
	return err.Error()
}

// ForClients returns the error that clients may see: how a process ended, but nothing of what it wrote.
// A client can often make a process crash, and stack traces hold tokens and connection strings.
// errors.As finds the cause.
func ForClients(err error) error {
	if _, ok := errors.AsType[*discreetError](err); ok {
		return err
	}
	if brief, ok := errors.AsType[briefError](err); ok {
		return Discreet(brief.Brief(), brief)
	}
	return err
}
