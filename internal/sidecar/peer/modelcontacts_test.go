package peer

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/test/hang"
)

// stages are the keys of a pod while the manager rotates them: every pod accepts the new key before one uses it.
const stages = 3

var (
	oldKey, newKey = adapterapi.NewKey(), adapterapi.NewKey()
	ringOfStage    = [stages]adapterapi.Keyring{
		{Current: oldKey}, {Current: oldKey, Accepted: []adapterapi.Key{newKey}}, {Current: newKey, Accepted: []adapterapi.Key{oldKey}},
	}
)

// contactTable is how the relay finds a pod, by what is at the address and by the keys of the two.
type contactTable [tenants][stages][stages]contact

// findContacts tries all of them with the real relay and the real handshakes.
func findContacts(t *testing.T) (found contactTable) {
	t.Helper()
	for who := range tenants {
		for mine := range stages {
			for theirs := range stages {
				if max(mine, theirs)-min(mine, theirs) == stages-1 {
					found[who][mine][theirs] = stranger // the manager lets no two pods be that far apart
					continue
				}
				found[who][mine][theirs] = findContact(t, who, mine, theirs)
			}
		}
	}
	return found
}

func findContact(t *testing.T, who tenant, mine, theirs int) contact {
	t.Helper()
	const entry, owner, other = 1, 0, 2
	trusted := func(pod, stage int) *trust.Trust {
		return trust.New(func() adapterapi.Keyring { return ringOfStage[stage] }, modelOwner(pod).UID)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options := relay.Options{Handshake: trusted(entry, mine).Handshake, Limits: relay.Limits{DialTimeout: hang.Guard}}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = l.Close() }()
	switch who {
	case vacant:
		options.Dial = func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, syscall.EHOSTUNREACH }
	case itself, sibling:
		pod := owner
		if who == sibling {
			pod = other
		}
		server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
		serving.Go(func() { _ = server.Serve(trust.Listen(l, trusted(pod, theirs), logr.Discard())) })
		defer func() { _ = server.Close() }()
	case mute:
		options.DialTimeout = 20 * time.Millisecond // it says nothing for however long
		serving.Go(func() { answerStrangely(l, who) })
	case foreigner:
		serving.Go(func() { answerStrangely(l, who) })
	case tenants:
	}
	r := relay.New(options)
	defer r.Close()
	to := modelOwner(owner)
	to.Address = netip.MustParseAddrPort(l.Addr().String())
	err = r.Forward(t.Context(), httptest.NewRecorder(), to, &relay.Request{Method: http.MethodPost, Target: "/mcp", Host: "server"})
	failed, dialed := errors.AsType[*relay.DialError](err)
	switch {
	case dialed:
		return contactOf(failed.Outcome)
	case err != nil:
		t.Errorf("tenant %d, stages %d and %d: %v", who, mine, theirs, err)
	case who != itself:
		t.Errorf("tenant %d, stages %d and %d: a request reached something else than the session's pod", who, mine, theirs)
	}
	return connected
}

// answerStrangely is another program: one that speaks plain HTTP, or one that says nothing.
func answerStrangely(l net.Listener, who tenant) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Read(make([]byte, 1<<10))
	if who == foreigner {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return
	}
	_, _ = io.Copy(io.Discard, c) // until the other side gives up
}

// idsOf are ids of the sessions, which the old key has made.
func idsOf(t *testing.T) (ids [modelSessions]string, parse [stages]func(string) (sessionid.Owner, error)) {
	t.Helper()
	for stage, ring := range ringOfStage {
		of, err := keys.New(ring, "")
		if err != nil {
			t.Fatal(err)
		}
		parse[stage] = of.Parse
		for s := range ids {
			if stage == 0 {
				ids[s] = of.Mint(modelOwner(s))
			}
		}
	}
	return ids, parse
}
