package launcher

import (
	"errors"
	"testing"

	"github.com/slipway-mcp/slipway/test/hang"
)

// The adapter learns what the server's container uses, and goes on to start processes.
func TestMemory(t *testing.T) {
	host, _ := startPair(t, nil, "cat")
	process := spawn(t, host)
	memory, err := host.Memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The launcher of this test has the cgroup of the test, or none.
	if want := findCgroups("/").usage(); memory.Limit != want.memoryLimit || (memory.Used > 0) != (want.memory > 0) {
		t.Errorf("got %+v, the cgroup says %+v", memory, want)
	}
	if err := process.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	exitOf(t, process)
	spawn(t, host)
}

// A launcher that does not tell, or tells nonsense, does not hold up a scrape or a start.
func TestMemoryIsNotTold(t *testing.T) {
	socket := newSocket(t)
	host := listen(t, socket, HostOptions{})
	if _, err := host.Memory(t.Context()); !errors.Is(err, ErrNoLauncher) {
		t.Errorf("without a launcher: %v", err)
	}
	old := newFake(t, host, socket) // its hello does not say that it tells
	if _, err := host.Memory(t.Context()); !errors.Is(err, ErrNoLauncher) {
		t.Errorf("an older launcher: %v", err)
	}
	old.must(old.Close())
	eventually(t, "the older launcher is gone", func() bool { return !host.Connected() })

	f := &fakeLauncher{conn: connectTo(t, socket), t: t, socket: socket}
	f.must(f.send(message{Kind: kindHello, Version: protocolVersion, Role: roleControl, Epoch: testEpoch, TellsUsage: true}))
	if m, err := f.receiveWithin(hang.Guard); err != nil || m.Kind != kindWelcome {
		t.Fatalf("answer to hello: %+v, %v", m, err)
	}
	eventually(t, "the welcome is followed by requests", host.Connected)
	for name, answer := range map[string]message{
		"no number": {Kind: kindUsage}, "a refusal": {Kind: kindRefused, Reason: ReasonMemory, Text: "x"},
	} {
		told := make(chan error, 1)
		go func() {
			_, err := host.Memory(t.Context())
			told <- err
		}()
		asked, err := f.receiveWithin(hang.Guard)
		f.must(err)
		if asked.Kind != kindUsage {
			t.Fatalf("asked for %+v", asked)
		}
		answer.ID = asked.ID
		f.must(f.send(answer))
		if err := <-told; err == nil {
			t.Errorf("%s is taken for an answer", name)
		}
	}
	started := make(chan error, 1)
	go func() {
		_, err := host.Spawn(t.Context(), "x")
		started <- err
	}()
	asked, err := f.receiveWithin(hang.Guard)
	f.must(err)
	f.must(f.send(message{Kind: kindUsage, ID: asked.ID, Memory: &Memory{Used: 1}}))
	if err := <-started; err == nil {
		t.Error("a number is taken for a process")
	}
}
