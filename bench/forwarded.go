package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/slipway-mcp/slipway/bench/report"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// Addresses of adapters that have one port in common, as pods have, and their UIDs.
var (
	podAddresses = []string{"127.0.0.2", "127.0.0.3"}
	podUIDs      = []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"}
)

// startRelay starts L3 and a bare relay, at which clients enter.
func startRelay(ctx context.Context, t *tools) (*running, error) {
	r, err := program("naive", true)(ctx, t)
	if err != nil {
		return nil, err
	}
	return r.enteredAt(t.startListening(ctx, t.path("relay"), r.address))
}

// enteredAt has clients enter at another program than the one with the sessions.
func (r *running) enteredAt(entry *running, err error) (*running, error) {
	if err != nil {
		r.stop()
		return nil, err
	}
	r.entry, r.enterAt = entry.bridge, entry.address
	return r, nil
}

// sidecarAmongPeers starts an adapter that others can pass requests on to.
func sidecarAmongPeers(ctx context.Context, t *tools) (*running, error) {
	r, _, err := t.startPeer(ctx)
	return r, err
}

// sidecarsForwarding starts two adapters. Sessions begin at one, and clients go on at the other.
func sidecarsForwarding(ctx context.Context, t *tools) (*running, error) {
	r, startAnother, err := t.startPeer(ctx)
	if err != nil {
		return nil, err
	}
	return r.enteredAt(startAnother())
}

// startPeer starts the first adapter of a server, and returns what starts the second one.
func (t *tools) startPeer(ctx context.Context) (first *running, another func() (*running, error), err error) {
	keys, err := t.writeKeys()
	if err != nil {
		return nil, nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, nil, err
	}
	start := func(i int) (*running, error) {
		return sidecar("--keys-dir", keys, "--pod-uid", podUIDs[i], "--pod-ip", podAddresses[i], "--peer-listen", podAddresses[i]+":"+strconv.Itoa(port))(ctx, t)
	}
	first, err = start(0)
	return first, func() (*running, error) { return start(1) }, err
}

// writeKeys makes the keys of a server.
func (t *tools) writeKeys() (dir string, err error) {
	dir = filepath.Join(t.home(), "keys")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make directory for keys: %w", err)
	}
	for name, text := range map[string]string{adapterapi.KeysCurrent: adapterapi.NewKey().Encode(), adapterapi.KeysAccepted: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { // systems may run as another user
			return "", fmt.Errorf("write keys: %w", err)
		}
	}
	return dir, nil
}

// forwarded is a workload in which all systems with a hop take part, beside the same without one.
func forwarded(name, title string, metrics []report.Metric, run func(context.Context, *cell) (values, error), rounds, quick int) workload {
	return workload{
		Workload: report.Workload{Name: name, Title: title, Metrics: metrics}, run: run, rounds: rounds, quick: quick,
		participants: []participants{goalSystems, also(1, naiveAgain, naiveForwarded, adapterForwarded, adapterPeers)},
	}
}

// forwardedWorkloads are those of clients that enter at another pod than their session's, beside clients that do not.
var forwardedWorkloads = []workload{
	forwarded("forwarded-1", "Small calls, 1 session, at another pod", small, callsIn(1, (*cell).settled), 12, 1),
	forwarded("forwarded-8", "Small calls, 8 sessions, at another pod", small, callsIn(8, (*cell).settled), 12, 1),
	forwarded("forwarded-64", "Small calls, 64 sessions, at another pod", small, callsIn(64, (*cell).settled), 12, 1),
	forwarded("forwarded-reply-1m", "A reply of 1 MiB, at another pod", large, largeReply(mebibyte), 8, 1),
	forwarded("forwarded-progress", "1,000 progress events a call, at another pod", progressMetrics, progress, 12, 1),
	forwarded("idle-forwarded", "500 idle sessions with an open stream at another pod", idleMetrics, idle(500), 3, 0),
	forwarded("idle-forwarded-100", "100 idle sessions with an open stream at another pod", idleMetrics, idle(100), 0, 1),
}
