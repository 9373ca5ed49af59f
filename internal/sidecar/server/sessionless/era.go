package sessionless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// Era is what a server speaks: revisions with sessions, or without.
type Era uint32

// The eras.
const (
	Auto   Era = iota // the adapter finds out
	Legacy            // with sessions only
	Modern            // without, and perhaps with sessions, too
)

// String returns the name that flags and the API have.
func (e Era) String() string { return [...]string{"Auto", "Stateful", "Stateless"}[e] }

// Set makes an Era a flag.
func (e *Era) Set(text string) error {
	for _, era := range []Era{Auto, Legacy, Modern} {
		if era.String() == text {
			*e = era
			return nil
		}
	}
	return fmt.Errorf("want Auto, Stateful or Stateless, not %q", text)
}

// Found is what the server is known to speak, or Auto.
func (s *Server) Found() Era { return Era(s.era.Load()) }

// Era finds out what the server speaks. If that is not known, it takes a process, which
// ends afterward.
func (s *Server) Era(ctx context.Context) (Era, error) {
	if era := s.Found(); era != Auto {
		return era, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.StartTimeout)
	defer cancel()
	found, usable, err := s.detect(ctx)
	if err != nil {
		return Auto, err
	}
	if usable != nil {
		usable.fail(errProbed)
	}
	s.learn(found)
	return s.Found(), nil
}

// learn records what the server speaks. It does not change what another start, or Era, found out
// meanwhile.
func (s *Server) learn(found verdict) {
	if found.era != Auto && s.era.CompareAndSwap(uint32(Auto), uint32(found.era)) {
		s.options.Log.Info("The server's era is known", "era", found.era.String(), "because", found.because)
	}
}

// verdict is an era that was found out, and how.
type verdict struct {
	era     Era
	because string
}

var errProbed = errors.New("the process was asked for its era, and is of no use to a session any more")

// detect finds out the server's era by asking a fresh process (B-02). If the process can
// serve clients, detect returns it, too.
func (s *Server) detect(ctx context.Context) (verdict, *process, error) {
	p, err := s.launch(ctx)
	if err != nil {
		return verdict{}, nil, err
	}
	found, usable, err := p.askEra(ctx, s.options.Limits.Silence)
	if usable {
		return found, p, nil
	}
	died := p.Dead()
	p.fail(errProbed)
	if died == nil || ctx.Err() != nil {
		return found, nil, err
	}
	// Some servers die of a request that they do not know.
	if p, err = s.launch(ctx); err != nil {
		return verdict{}, nil, err
	}
	defer p.fail(errProbed)
	found, err = p.askAgain(ctx)
	return found, nil, err
}

// askEra asks the process for server/discover, and to initialize if it does not answer. The
// process is usable unless it was asked to initialize.
func (p *process) askEra(ctx context.Context, silence time.Duration) (found verdict, usable bool, err error) {
	discover, err := p.ask(ctx, nil, "server/discover", metaWith(allCapabilities))
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
	if ctx.Err() != nil || p.Dead() != nil {
		return verdict{}, false, err
	}
	initialize, err := p.askInitialize(ctx)
	if err != nil {
		return verdict{}, false, err
	}
	defer initialize.forget()
	found, err = decide(ctx, discover, initialize)
	return found, false, err
}

// decide waits for the first of two answers that tells the era. A process that was asked to
// initialize may have taken that for its era, so that it is of no use, but its answers still
// tell what a fresh one will do.
func decide(ctx context.Context, discover, initialize *Call) (verdict, error) {
	refused := false
	for {
		if answer, ok := discover.Next(); ok {
			return verdictOf(answer.Message), discover.process.Dead()
		}
		if answer, ok := initialize.Next(); ok {
			if err := discover.process.Dead(); err != nil {
				return verdict{}, err
			}
			if isResult(answer.Message) {
				return silentVerdict, nil
			}
			refused = true // the process may yet answer the other request
		}
		select {
		case <-discover.ready:
		case <-initialize.ready:
		case <-ctx.Done():
			if refused {
				return verdict{}, errors.New("the server refuses initialize and does not answer server/discover")
			}
			return verdict{}, fmt.Errorf("wait for the server to answer server/discover or initialize: %w", ctx.Err())
		}
	}
}

var silentVerdict = verdict{Legacy, "it did not answer server/discover, and does answer initialize"}

// askAgain is for a server whose process died of server/discover.
func (p *process) askAgain(ctx context.Context) (verdict, error) {
	initialize, err := p.askInitialize(ctx)
	if err != nil {
		return verdict{}, err
	}
	defer initialize.forget()
	answer, err := initialize.await(ctx)
	switch {
	case err != nil:
		return verdict{}, err
	case !isResult(answer):
		return verdict{}, errors.New("the server ends when it is asked for server/discover, and refuses initialize")
	}
	return silentVerdict, nil
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

// isResult says whether an answer is not an error.
func isResult(answer []byte) bool {
	envelope, err := rpc.ScanLenient(answer)
	return err == nil && envelope.Result.Present()
}
