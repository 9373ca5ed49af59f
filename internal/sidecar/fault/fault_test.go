package fault

import (
	"errors"
	"fmt"
	"testing"
)

func TestBusy(t *testing.T) {
	one, other := Busy("one limit"), Busy("one limit")
	wrapped := fmt.Errorf("send: %w", one)
	if wrapped.Error() != "send: one limit" {
		t.Errorf("it says %q", wrapped)
	}
	if !errors.Is(wrapped, ErrBusy) || !errors.Is(wrapped, one) {
		t.Error("it is not recognized")
	}
	if errors.Is(wrapped, other) || errors.Is(wrapped, ErrFull) || errors.Is(wrapped, ErrDraining) {
		t.Error("it is taken for another")
	}
}

// secretive is an error with words that may be secret.
type secretive struct{}

func (*secretive) Error() string { return "it ended: password=hunter2" }

func (*secretive) Brief() string { return "it ended" }

func TestSecretsAreKept(t *testing.T) {
	cause := &secretive{}
	for name, test := range map[string]struct {
		err               error
		brief, forClients string
	}{
		"itself":           {cause, "it ended", "it ended"},
		"wrapped":          {fmt.Errorf("initialize: %w", cause), "it ended", "it ended"},
		"discreet":         {Discreet("it is gone", cause), "it is gone", "it is gone"},
		"discreet, twice":  {ForClients(cause), "it ended", "it ended"},
		"wrapped discreet": {fmt.Errorf("initialize: %w", Discreet("it is gone", cause)), "it is gone", "initialize: it is gone"},
	} {
		if got := Brief(test.err); got != test.brief {
			t.Errorf("%s: brief is %q", name, got)
		}
		got := ForClients(test.err)
		if got.Error() != test.forClients {
			t.Errorf("%s: clients are told %q", name, got)
		}
		if found, ok := errors.AsType[*secretive](got); !ok || found != cause {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	other := fmt.Errorf("send: %w", Busy("one limit"))
	if got := ForClients(other); !errors.Is(got, other) || Brief(other) != "send: one limit" {
		t.Errorf("another error becomes %v, %q", got, Brief(other))
	}
}
