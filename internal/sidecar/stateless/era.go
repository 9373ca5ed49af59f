package stateless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// Era is what a server speaks: revisions with sessions, or without.
type Era uint32

// The eras.
const (
	Auto   Era = iota // to be found out
	Legacy            // with sessions only
	Modern            // without, and perhaps with sessions, too
)

func (e Era) String() string { return [...]string{"auto", "legacy", "modern"}[e] }

// Set makes an Era a flag.
func (e *Era) Set(text string) error {
	for _, era := range []Era{Auto, Legacy, Modern} {
		if era.String() == text {
			*e = era
			return nil
		}
	}
	return fmt.Errorf("want auto, legacy or modern, not %q", text)
}

func (p *process) foundEra() Era { return Era(p.era.Load()) }

func (p *process) findEra(ctx context.Context) (Era, error) {
	if era := p.foundEra(); era != Auto {
		return era, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.options.Limits.StartTimeout)
	defer cancel()
	found, running, err := p.detect(ctx)
	if err != nil {
		return Auto, err
	}
	if running != nil {
		running.fail(errProbed)
	}
	p.learn(found)
	return found.era, nil
}

// learn notes what the server speaks. What was not found out does not change what another
// start, or findEra, found out meanwhile.
func (p *process) learn(found verdict) {
	if found.era != Auto && p.era.Swap(uint32(found.era)) != uint32(found.era) {
		p.options.Log.Info("The server's era is known", "era", found.era.String(), "because", found.because)
	}
}

// verdict is an era that was found out, and how.
type verdict struct {
	era     Era
	because string
}

var errProbed = errors.New("it was asked for its era, and is of no use to a session any more")

// detect finds out the server's era by asking a fresh process (B-02). If the process can
// serve clients, it is returned, too.
func (p *process) detect(ctx context.Context) (verdict, *run, error) {
	r, err := p.launch(ctx)
	if err != nil {
		return verdict{}, nil, err
	}
	found, usable, err := r.askEra(ctx, p.options.Limits.Silence)
	if usable {
		return found, r, nil
	}
	died := r.Dead()
	r.fail(errProbed)
	if died == nil || ctx.Err() != nil {
		return found, nil, err
	}
	// Some servers die of what they do not know.
	if r, err = p.launch(ctx); err != nil {
		return verdict{}, nil, err
	}
	defer r.fail(errProbed)
	return r.askInitialize(ctx)
}

// askEra asks the process for server/discover, and if it is silent to initialize. The
// process is usable unless it was.
func (r *run) askEra(ctx context.Context, silence time.Duration) (found verdict, usable bool, err error) {
	discover, err := r.begin(ctx, discoverRequest())
	if err != nil {
		return verdict{}, false, err
	}
	defer discover.forget()
	ctxSilence, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	answer, err := discover.await(ctxSilence)
	if err == nil {
		found = verdictOf(answer)
		return found, found.era == Modern, nil
	}
	if ctx.Err() != nil || r.Dead() != nil {
		return verdict{}, false, err
	}
	initialize, err := r.begin(ctx, initializeRequest())
	if err != nil {
		return verdict{}, false, err
	}
	defer initialize.forget()
	found, err = decide(ctx, discover, initialize)
	return found, false, err
}

// decide waits for whichever of two answers tells the era. Once the process was asked
// to initialize it may have taken that for its era, so that it is of no use, but its
// answers still tell what a fresh one will do.
func decide(ctx context.Context, discover, initialize *call) (verdict, error) {
	refused := false
	for {
		if answer, ok := discover.take(); ok {
			return verdictOf(answer.message), discover.run.Dead()
		}
		if answer, ok := initialize.take(); ok {
			if err := discover.run.Dead(); err != nil {
				return verdict{}, err
			}
			if agrees(answer.message) {
				return silentVerdict, nil
			}
			refused = true // it may yet answer the other
		}
		select {
		case <-discover.wake:
		case <-initialize.wake:
		case <-ctx.Done():
			if refused {
				return verdict{}, errors.New("the server refuses initialize and does not answer server/discover")
			}
			return verdict{}, fmt.Errorf("wait for the server to answer server/discover or initialize: %w", ctx.Err())
		}
	}
}

var silentVerdict = verdict{Legacy, "it did not answer server/discover, and does answer initialize"}

// askInitialize is for a server whose process died of server/discover.
func (r *run) askInitialize(ctx context.Context) (verdict, *run, error) {
	initialize, err := r.begin(ctx, initializeRequest())
	if err != nil {
		return verdict{}, nil, err
	}
	defer initialize.forget()
	answer, err := initialize.await(ctx)
	switch {
	case err != nil:
		return verdict{}, nil, err
	case r.Dead() != nil:
		return verdict{}, nil, r.Dead()
	case !agrees(answer):
		return verdict{}, nil, errors.New("the server ends when it is asked for server/discover, and refuses initialize")
	}
	return silentVerdict, nil, nil
}

// await waits for the answer to a request of our own.
func (c *call) await(ctx context.Context) ([]byte, error) {
	for {
		next, ok := c.take()
		switch {
		case ok && next.last:
			return next.message, c.run.Dead()
		case ok:
			continue // it is for the answer that we ask
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the server to answer: %w", ctx.Err())
		}
	}
}

// forget is release for a request of our own that need not be cancelled.
func (c *call) forget() {
	c.run.mu.Lock()
	c.answered = true
	c.run.mu.Unlock()
	c.release()
}

// verdictOf reads the answer to server/discover. It is not the code of an error that
// tells servers apart (L-29), but whether they name a revision without sessions (L-33).
func verdictOf(answer []byte) verdict {
	var response struct {
		Result *struct {
			SupportedVersions []string `json:"supportedVersions"`
		} `json:"result"`
		Error *struct {
			Code int `json:"code"`
			Data struct {
				Supported []string `json:"supported"`
			} `json:"data"`
		} `json:"error"`
	}
	const names, other = "it names the revision when it is asked for server/discover", "it does not name the revision when it is asked for server/discover"
	if err := json.Unmarshal(answer, &response); err != nil {
		return verdict{Legacy, other}
	}
	var supported []string
	switch {
	case response.Result != nil:
		supported = response.Result.SupportedVersions
	case response.Error != nil && response.Error.Code == rpc.CodeUnsupportedRevision:
		supported = response.Error.Data.Supported
	case response.Error != nil && response.Error.Code == rpc.CodeMissingCapability:
		return verdict{Modern, "it answers server/discover with an error that only this era has"}
	}
	if slices.Contains(supported, front.Revision20260728) {
		return verdict{Modern, names}
	}
	return verdict{Legacy, other}
}

// agrees says whether an answer is not an error.
func agrees(answer []byte) bool {
	envelope, err := rpc.ScanLenient(answer)
	return err == nil && envelope.Result.Present()
}

// ownRequest is a request of our own. Its id is replaced when it is sent.
func ownRequest(method, params string) session.Message {
	text := rpc.AppendRequest(nil, []byte("0"), method, params)
	envelope, err := rpc.Scan(text)
	if err != nil {
		panic(err) // it is made of what we know to be right
	}
	return session.Message{Bytes: text, Envelope: envelope}
}

// allCapabilities are those of a client that can do everything. Some servers list more
// tools to clients that can do more, and all are to be known.
const allCapabilities = `{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"tools":{},"context":{}}}`

// ownMeta is what a request of our own says of its client.
func ownMeta() string { return metaWith(allCapabilities) }

// metaWith is what a request says of a client with these capabilities.
func metaWith(capabilities string) string {
	return `"_meta":{"` + rpc.MetaProtocolVersion + `":"` + front.Revision20260728 + `",` +
		`"` + rpc.MetaClientInfo + `":` + rpc.ClientInfo(version.Get().Version) + `,` +
		`"` + rpc.MetaClientCapabilities + `":` + capabilities + `}`
}

const methodDiscover = "server/discover"

func discoverRequest() session.Message { return ownRequest(methodDiscover, ownMeta()) }

func initializeRequest() session.Message {
	return ownRequest(rpc.MethodInitialize, rpc.InitializeParams(front.Revision20251125, "{}", version.Get().Version))
}
