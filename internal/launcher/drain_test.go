package launcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestDrainWaitsForTheAdapter(t *testing.T) {
	socket := newSocket(t)
	asked, release := make(chan struct{}), make(chan struct{})
	listen(t, socket, HostOptions{Drain: func(ctx context.Context) {
		close(asked)
		select {
		case <-release:
		case <-ctx.Done():
		}
	}})
	drained := make(chan error)
	go func() { drained <- Drain(t.Context(), socket) }()
	<-asked
	select {
	case err := <-drained:
		t.Fatalf("returned before the drain was over: %v", err)
	default:
	}
	close(release)
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestDrainReturns(t *testing.T) {
	never := func(ctx context.Context) { <-ctx.Done() }
	tests := map[string]struct {
		host    func(t *testing.T, socket string)
		wantErr error
	}{
		"no socket": {func(*testing.T, string) {}, nil},
		"dead socket": {func(t *testing.T, socket string) {
			host := listen(t, socket, HostOptions{})
			host.listener.SetUnlinkOnClose(false)
			_ = host.Close()
		}, nil},
		"nothing to drain": {func(t *testing.T, socket string) { listen(t, socket, HostOptions{}) }, nil},
		"deadline": {func(t *testing.T, socket string) {
			listen(t, socket, HostOptions{Drain: never})
		}, context.DeadlineExceeded},
		"adapter dies": {func(t *testing.T, socket string) {
			var host *Host
			made := make(chan struct{})
			host = listen(t, socket, HostOptions{Drain: func(ctx context.Context) {
				<-made
				go func() { _ = host.Close() }()
				<-ctx.Done()
			}})
			close(made)
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			socket := newSocket(t)
			test.host(t, socket)
			limit := hang.Guard
			if test.wantErr != nil {
				limit = 20 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := Drain(ctx, socket); !errors.Is(err, test.wantErr) {
				t.Errorf("error %v, want %v", err, test.wantErr)
			}
		})
	}
}

// late is a context whose deadline has passed, and whose timer has not fired yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// A deadline that passes before the adapter is reached is no adapter that is gone, also if the
// dialer sees it before the context does.
func TestDrainWithoutTimeToDial(t *testing.T) {
	socket := newSocket(t)
	listen(t, socket, HostOptions{})
	if err := Drain(late{t.Context()}, socket); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestDrainHooksAreBounded(t *testing.T) {
	socket := newSocket(t)
	begun := make(chan struct{}, maxDrains)
	ended := make(chan struct{}, maxDrains)
	listen(t, socket, HostOptions{Drain: func(ctx context.Context) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	for range maxDrains {
		go func() { _ = Drain(ctx, socket) }()
		<-begun
	}
	if err := Drain(t.Context(), socket); err != nil {
		t.Errorf("one too many: %v, want to be let go", err)
	}
	cancel() // the hooks give up, and the adapter is told
	for range maxDrains {
		<-ended
	}
}
