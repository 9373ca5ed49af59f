package rpc

import "testing"

func TestEvents(t *testing.T) {
	for name, test := range map[string]struct{ got, want string }{
		"R30 message":    {string(AppendEvent(nil, Event{Data: []byte(`{"a":1}`)})), "event: message\ndata: {\"a\":1}\n\n"},
		"message and id": {string(AppendEvent(nil, Event{ID: []byte("s_1"), Data: []byte(`{}`)})), "event: message\nid: s_1\ndata: {}\n\n"},
		"E-02 endpoint":  {string(AppendEvent(nil, Event{Type: "endpoint", Data: []byte("/m")})), "event: endpoint\ndata: /m\n\n"},
		"T-22 priming":   {string(AppendPriming(nil, "s_0", 1500)), "id: s_0\nretry: 1500\ndata: \n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("got %q, want %q", test.got, test.want)
			}
		})
	}
}
