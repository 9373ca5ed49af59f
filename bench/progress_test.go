package main

import (
	"fmt"
	"testing"
)

func TestTally(t *testing.T) {
	event := func(token, number int) []byte {
		return fmt.Appendf(nil, `{"method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}`, token, number)
	}
	all := make([][]byte, eventsPerCall)
	for i := range all {
		all[i] = event(3, i)
	}
	for name, test := range map[string]struct {
		messages  [][]byte
		delivered int
		fail      bool
	}{
		"all":          {messages: all, delivered: eventsPerCall},
		"none":         {},
		"without one":  {messages: append(append([][]byte(nil), all[:500]...), all[501:]...), delivered: eventsPerCall - 1},
		"without last": {messages: all[:eventsPerCall-1], delivered: eventsPerCall - 1},
		"swapped":      {messages: [][]byte{event(3, 1), event(3, 0)}, fail: true},
		"twice":        {messages: [][]byte{event(3, 0), event(3, 0)}, fail: true},
		"of another":   {messages: [][]byte{event(2, 0)}, fail: true},
		"no progress":  {messages: [][]byte{[]byte(`{"method":"notifications/message"}`)}, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &tally{arrived: make(chan struct{}, 1)}
			counted.begin(3)
			for _, message := range test.messages {
				_ = counted.take(message, false) // finish says it again
			}
			delivered, _, err := counted.finish()
			if (err != nil) != test.fail || !test.fail && delivered != test.delivered {
				t.Errorf("%d are delivered, %v; want %d", delivered, err, test.delivered)
			}
		})
	}
}
