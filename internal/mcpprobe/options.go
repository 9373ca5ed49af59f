package mcpprobe

import "time"

// Options say how to probe. The zero value works for every server.
type Options struct {
	// Limits bound what the probe takes from the server.
	Limits Limits
	// SkipDiscover opens with initialize at once. It is for servers known to have
	// sessions only, and for processes that exit on a request that they do not know.
	SkipDiscover bool
	// SkipInitialize opens with server/discover only, however the server answers and
	// however long it takes. It is for processes known to have no sessions, which must
	// not get initialize. It does not apply to SSE, which always has sessions.
	SkipInitialize bool
	// DiscoverTimeout is how long the probe waits for a process to answer server/discover
	// before it sends initialize; 10 s when zero. It has to cover the start of the
	// process. It does not apply to HTTP, where silence says nothing about the era.
	DiscoverTimeout time.Duration
	// Junk gets every line of a process other than messages. The line is valid until Junk
	// returns.
	Junk func(line []byte)
}

// Limits bound what a probe takes from a server. Zero fields stand for the defaults.
type Limits struct {
	Pages        int // of one list; 500
	Items        int // of one list, over all pages; 10,000
	ItemBytes    int // of one tool, prompt, resource or template; 1 MiB
	ReplyBytes   int // of one reply as it comes over the wire; 8 MiB
	CatalogBytes int // of everything in a catalog; 16 MiB
}

const (
	defaultDiscoverTimeout = 10 * time.Second

	// smallReply bounds every message except answers to list requests. The SDK decodes
	// these messages, at a multiple of their size.
	smallReply = 1 << 20
	// requestsInHand is how many requests of a server may wait for their answer. At that
	// number the guard reads no more until the server has read an answer.
	requestsInHand = 16
	// closeTimeout bounds the end of a session, such as its DELETE.
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
