package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// channelOf has notes ready to be read.
func channelOf(notes ...note) <-chan note {
	channel := make(chan note, len(notes))
	for _, n := range notes {
		channel <- n
	}
	return channel
}

func allOf(server string) (notes []note) {
	for m := range milestones {
		notes = append(notes, note{server: server, reached: m, at: time.Unix(int64(m), 0)})
	}
	return notes
}

func TestGather(t *testing.T) {
	// The last comes first, and some things are heard of twice.
	notes := append([]note{{server: "one", reached: verified, at: time.Unix(int64(verified), 0)}}, append(allOf("one"), allOf("two")...)...)
	lines, err := gather(t.Context(), channelOf(notes...), 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 {
		t.Fatalf("%d servers, want 2", len(lines))
	}
	for _, line := range lines {
		if total := line.total(); total != time.Duration(verified)*time.Second {
			t.Errorf("total %v", total)
		}
	}
}

func TestGatherSaysWhoIsLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	channel := make(chan note)
	go func() {
		defer cancel()
		for _, n := range append(allOf("one"), allOf("two")[:podReady]...) {
			channel <- n
		}
	}()
	_, err := gather(ctx, channel, 2)
	if !errors.Is(err, context.Canceled) || !strings.HasSuffix(err.Error(), ": two lacks podReady, verified") {
		t.Errorf("error %v", err)
	}
}

func TestGatherPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	if _, err := gather(t.Context(), channelOf(note{err: broken}), 1); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
