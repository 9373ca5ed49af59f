//go:build conformance

package eras

import (
	"context"
	"slices"
	"testing"
)

// A list that a call changed is seen by the client that was told, also after it had two
// calls at a time (B-06: the list changes for all users of a pool key).
func TestChangedListIsSeen(t *testing.T) {
	at := columns[0].withTranslation().start(t)
	c := &goClient{key: "one", revision: modern}
	if err := c.connect(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _, _ = c.call(waiting, "wait", map[string]any{"key": c.key}) }()
	if err := until(ctx, c.counted(ctx, "started")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := until(ctx, c.counted(ctx, "cancelled")); err != nil {
		t.Fatal(err)
	}
	if err := c.provoke(ctx, "grow", func() bool { return c.changes > 0 }); err != nil {
		t.Fatal(err)
	}
	if names, err := c.toolNames(ctx); err != nil || !slices.Contains(names, "grown-"+c.key) {
		t.Errorf("tools are %q, %v", names, err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}
