package caller

import (
	"fmt"
	"testing"
)

func with(principal Principal, shown ...string) *Caller {
	return &Caller{Principal: principal, Address: "192.0.2.1", Authorization: shown}
}

func TestOwner(t *testing.T) {
	for name, test := range map[string]struct {
		owner, other *Caller
		is, verified bool
	}{
		"the same principal":          {with("anna", "Bearer a1"), with("anna", "Bearer a2"), true, true},
		"another principal":           {with("anna", "Bearer a1"), with("bert", "Bearer a1"), false, false},
		"no token, anna's session":    {with("anna", "Bearer a1"), with(Anonymous), false, false},
		"anna, a session of no token": {with(Anonymous), with("anna", "Bearer a1"), false, false},
		"no token, and no token":      {with(Anonymous), &Caller{Address: "192.0.2.2"}, true, true},
		"the same opaque token":       {with(SomeToken, "Bearer x"), with(SomeToken, "Bearer x"), true, true},
		"another opaque token":        {with(SomeToken, "Bearer x"), with(SomeToken, "Bearer y"), true, false},
		"an opaque token, anna's":     {with("anna", "Bearer a1"), with(SomeToken, "Bearer a1"), false, false},
	} {
		owner := NewOwner(test.owner)
		if is, verified := owner.Is(test.other), owner.IsVerified(test.other); is != test.is || verified != test.verified {
			t.Errorf("%s: is %t, verified %t", name, is, verified)
		}
	}
}

// Tokens that the server accepted count, and only so many are remembered.
func TestAcceptedTokens(t *testing.T) {
	owner := NewOwner(with(SomeToken, "Bearer 0"))
	for n := range mostTokens {
		next := with(SomeToken, fmt.Sprint("Bearer ", n+1))
		owner.Accepted(next)
		owner.Accepted(next)
		if !owner.IsVerified(next) {
			t.Errorf("%v is not remembered", next.Authorization)
		}
	}
	if owner.IsVerified(with(SomeToken, "Bearer 0")) || len(owner.tokens) != mostTokens {
		t.Errorf("%d tokens are remembered", len(owner.tokens))
	}
	theirs := NewOwner(with("anna", "Bearer a"))
	theirs.Accepted(with(SomeToken, "Bearer x"))
	if theirs.IsVerified(with(SomeToken, "Bearer x")) {
		t.Error("a token that names no owner is taken for the owner's")
	}
}

func TestGroup(t *testing.T) {
	groups := map[string]string{}
	for name, c := range map[string]*Caller{
		"the adapter": nil, "an address": with(Anonymous), "another": {Address: "192.0.2.2"},
		"a token": with("anna", "a"), "another token": with("anna", "b"), "two": with(SomeToken, "a", "b"), "one of both": with(SomeToken, "ab"),
	} {
		if other, taken := groups[c.Group()]; taken {
			t.Errorf("%s and %s are one group", name, other)
		}
		groups[c.Group()] = name
	}
	if with("anna", "a").Group() != with(SomeToken, "a").Group() {
		t.Error("callers with the same token have different groups")
	}
}
