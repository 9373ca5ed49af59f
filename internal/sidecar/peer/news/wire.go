package news

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const (
	// mostAsked bounds the body of a request for news, and mostURIs the resources in it. Both are as at a process.
	mostAsked = 2 << 20
	mostURIs  = 4096
	// mostEvent bounds an event of a stream of news. The longest has URIs of uriBytes, each byte of which may be escaped.
	mostEvent = 128 << 10
	// eventBytes is how much an event may have before the next URI goes into another one.
	eventBytes = 16 << 10
	// uriBytes is how long a URI in the news may be. A change of a longer one counts as one of everything.
	uriBytes = 8 << 10
)

// asked is the body of a request for news. Pods of a later version may add members.
type asked struct {
	Wants []want `json:"wants"`
}

type want struct {
	Principal string   `json:"principal,omitempty"`
	Lists     []string `json:"lists,omitempty"`
	URIs      []string `json:"uris,omitempty"`
}

// encodeWants returns the body of a request for news, and what it asks for: less than is wanted, if that is too much.
func encodeWants(wants []subscription.Want) (body []byte, within []subscription.Want) {
	room, count := mostAsked/2, mostURIs
	var all asked
	for _, w := range wants {
		if room -= cost(w.Principal); room < 0 {
			break
		}
		fits := 0
		for fits < len(w.URIs) && count > 0 && room >= cost(w.URIs[fits]) {
			room -= cost(w.URIs[fits])
			count--
			fits++
		}
		w.URIs = w.URIs[:fits:fits]
		within = append(within, w)
		all.Wants = append(all.Wants, want{Principal: w.Principal, Lists: w.Lists.Names(), URIs: w.URIs})
	}
	return encode(&all), within
}

// cost is how many bytes a string takes in JSON, with what is around it.
func cost(text string) int { return len(rpc.AppendString(nil, text)) + 64 }

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("encode news: " + err.Error()) // it has only strings and numbers
	}
	return text
}

func decodeWants(body []byte) ([]subscription.Want, error) {
	var all asked
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("read what another pod wants: %w", err)
	}
	wants := make([]subscription.Want, len(all.Wants))
	uris := 0
	for i, w := range all.Wants {
		slices.Sort(w.URIs)
		w.URIs = slices.Compact(w.URIs)
		uris += len(w.URIs)
		wants[i] = subscription.Want{Principal: w.Principal, Filter: subscription.Filter{Lists: subscription.SetOf(w.Lists), URIs: w.URIs}}
	}
	if uris > mostURIs {
		return nil, fmt.Errorf("another pod wants news of %d resources, and may of %d", uris, mostURIs)
	}
	return wants, nil
}

// event is one of a stream of news. The first event has only the members before Of. Every other event is about one of the
// Wants that were asked for.
type event struct {
	Running []int    `json:"running,omitempty"` // the Wants for which there is a process
	Begins  bool     `json:"begins,omitempty"`  // it is the first
	Stream  string   `json:"stream,omitempty"`  // the id of the stream
	Follows bool     `json:"follows,omitempty"` // the stream that it replaces has ended by that, with no gap between the two
	Of      int      `json:"of"`
	All     bool     `json:"all,omitempty"` // everything that the Want asks for may have changed
	Lists   []string `json:"lists,omitempty"`
	URIs    []string `json:"uris,omitempty"`
}

// running says of each of so many Wants whether there is a process for it.
func (e *event) running(wants int) []bool {
	running := make([]bool, wants)
	for _, i := range e.Running {
		if i >= 0 && i < wants {
			running[i] = true
		}
	}
	return running
}

// sink takes what a stream of news says.
type sink interface {
	begin(first *event)
	tell(of int, changed subscription.Filter)
	tellMissed(of int)
}

var errNews = errors.New("a stream of news has an event that is none")

// read reads a stream of news of so many Wants to its end.
func read(stream io.Reader, wants int, to sink) error {
	events := rpc.NewEventReader(stream, mostEvent)
	for first := true; ; first = false {
		next, err := events.Next()
		if err != nil {
			return err
		}
		var e event
		switch err := json.Unmarshal(next.Data, &e); {
		case err != nil:
			return fmt.Errorf("%w: %w", errNews, err)
		case e.Begins != first:
			return fmt.Errorf("%w: the first one, and no other, begins it", errNews)
		case first:
			to.begin(&e)
			continue
		case e.Of < 0 || e.Of >= wants:
			return fmt.Errorf("%w: it is of what was not asked for", errNews)
		}
		if e.All {
			to.tellMissed(e.Of)
		}
		changed := subscription.Filter{Lists: subscription.SetOf(e.Lists), URIs: e.URIs}
		slices.Sort(changed.URIs)
		changed.URIs = slices.Compact(changed.URIs)
		if !changed.IsEmpty() {
			to.tell(e.Of, changed)
		}
	}
}
