package mcpprobe

import "time"

// Options are how to probe. The zero value is good for every server.
type Options struct {
	// Limits bound what is taken from the server.
	Limits Limits
	// SkipDiscover opens with initialize at once. It is for servers known to be of
	// the older era, and for processes that exit on a request they do not know.
	SkipDiscover bool
	// SkipInitialize asks by server/discover only, however the server answers and
	// however long it takes. It is for processes known to have no sessions, which
	// must not be asked for one. It does not apply to SSE, which has nothing else.
	SkipInitialize bool
	// DiscoverTimeout is how long a process may leave server/discover unanswered
	// before initialize is tried on it; 10 s when zero. It has to cover the start of
	// the process. It does not apply to HTTP, where silence says nothing of the era.
	DiscoverTimeout time.Duration
	// Junk is called with every line of a process that is no message. The line is
	// valid until Junk returns.
	Junk func(line []byte)
}

// Limits bound what is taken from a server. Zero fields stand for the defaults.
type Limits struct {
	Pages        int // of one list; 500
	Items        int // of one list, over all pages; 10,000
	ItemBytes    int // of one tool, prompt, resource or template; 1 MiB
	ReplyBytes   int // of one reply as it comes over the wire; 8 MiB
	CatalogBytes int // of everything in a catalogue; 16 MiB
}

const (
	defaultDiscoverTimeout = 10 * time.Second

	// smallReply bounds every message that does not answer a list request: those
	// are decoded by the SDK, at a multiple of their size.
	smallReply = 1 << 20
	// requestsInHand is how many requests of a server are worked on at once. Beyond
	// that nothing more is read until it has taken its answers.
	requestsInHand = 16
	// closeTimeout is what the end of a session may take, such as its DELETE.
	closeTimeout = time.Second
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 5 * time.Second
	// headerBytes bounds the header of an HTTP response.
	headerBytes = 64 << 10
)

func (o Options) withDefaults() Options {
	if o.DiscoverTimeout <= 0 {
		o.DiscoverTimeout = defaultDiscoverTimeout
	}
	o.Limits = o.Limits.withDefaults()
	return o
}

func (l Limits) withDefaults() Limits {
	for _, limit := range []struct {
		value    *int
		standard int
	}{
		{&l.Pages, 500},
		{&l.Items, 10_000},
		{&l.ItemBytes, 1 << 20},
		{&l.ReplyBytes, 8 << 20},
		{&l.CatalogBytes, 16 << 20},
	} {
		if *limit.value <= 0 {
			*limit.value = limit.standard
		}
	}
	return l
}
