package sessionless

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
)

func TestVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		want   Era
	}{
		"B-02 modern":                 {`"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}`, Modern},
		"L-34 all":                    {`"result":{"supportedVersions":["2024-11-05","2026-07-28"]}`, Modern},
		"L-33 older ones":             {`"result":{"supportedVersions":["2025-11-25"]}`, Legacy},
		"P-01 empty result":           {`"result":{}`, Legacy},
		"no object":                   {`"result":[]`, Legacy},
		"B-02 -32022 with ours":       {`"error":{"code":-32022,"message":"","data":{"supported":["2026-07-28"]}}`, Modern},
		"L-33 -32022 with older ones": {`"error":{"code":-32022,"message":"","data":{"supported":["2025-11-25"]}}`, Legacy},
		"-32022 with nothing":         {`"error":{"code":-32022,"message":""}`, Legacy},
		"L-29 -32021":                 {`"error":{"code":-32021,"message":"","data":{"requiredCapabilities":{}}}`, Modern},
		"-32601":                      {`"error":{"code":-32601,"message":""}`, Legacy},
		"-32602":                      {`"error":{"code":-32602,"message":""}`, Legacy},
		"-32000 with ours":            {`"error":{"code":-32000,"message":"","data":{"supported":["2026-07-28"]}}`, Legacy},
		"code 0":                      {`"error":{"code":0,"message":"not initialized"}`, Legacy},
		"odd data":                    {`"error":{"code":-32022,"message":"","data":"2026-07-28"}`, Legacy},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdictOf([]byte(`{"jsonrpc":"2.0","id":1,` + test.answer + `}`)); got.era != test.want {
				t.Errorf("got %s, want %s", got.era, test.want)
			}
		})
	}
}

const (
	initialized = `"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`
	unknown     = `"error":{"code":-32601,"message":"unknown"}`
)

var errExit = errors.New("it has ended")

// B-02: how a server behaves, what comes of a request, and how many processes it takes.
func TestEra(t *testing.T) {
	const (
		served     = 0 // by the process
		translated = 1 // by what stands in for it
		failed     = 2
	)
	for name, test := range map[string]struct {
		era       Era
		play      func(process int, p *script)
		outcome   int
		processes int
	}{
		"modern": {Auto, func(int, *script) {}, served, 1},
		"legacy": {Auto, func(_ int, p *script) { p.Answers["server/discover"] = unknown }, translated, 1},
		"legacy, silent": {Auto, func(_ int, p *script) {
			p.Answers["server/discover"], p.Answers["initialize"] = "", initialized
		}, translated, 1},
		"refuses, silent": {Auto, func(_ int, p *script) {
			p.Answers["server/discover"], p.Answers["initialize"] = "", unknown
		}, failed, 1},
		"silent": {Auto, func(_ int, p *script) {
			p.Answers["server/discover"], p.Answers["initialize"] = "", ""
		}, failed, 1},
		"dies of it, legacy": {Auto, func(process int, p *script) {
			delete(p.Answers, "server/discover")
			p.Answers["initialize"] = initialized
			if process == 1 {
				go func() {
					<-p.Sent
					p.End(errExit)
				}()
			}
		}, translated, 2},
		"dies of everything": {Auto, func(_ int, p *script) {
			delete(p.Answers, "server/discover")
			go func() {
				<-p.Sent
				p.End(errExit)
			}()
		}, failed, 2},
		"pinned to modern": {Modern, func(_ int, p *script) { p.Answers["server/discover"] = unknown }, served, 1},
		"pinned to legacy": {Legacy, func(int, *script) {}, translated, 0},
	} {
		t.Run(name, func(t *testing.T) {
			processes := 0
			s := newStage(t, func(o *Options) {
				o.Era = test.era
				if strings.HasSuffix(name, "silent") { // a slow machine must not make others so
					o.Limits.Silence = 20 * time.Millisecond
					if test.outcome == failed {
						o.Limits.StartTimeout = 100 * time.Millisecond
					}
				}
			}, func(p *script) {
				processes++
				test.play(processes, p)
			})
			call := s.post(enveloped(`"e"`, "some/method", ""))
			if test.outcome <= translated {
				var p *script
				if test.outcome == served {
					p = s.process()
				} else {
					await(t, "a stand-in", s.isRunning)
					p = s.standIn
				}
				p.Answer(p.Next(t), `"result":{}`)
				call.want(`"result":{}`)
				call = s.post(enveloped(`"f"`, "some/method", ""))
				p.Answer(p.Next(t), `"result":{}`)
				call.want()
			} else {
				call.wantError()
			}
			if processes != test.processes {
				t.Errorf("%d processes were started, want %d", processes, test.processes)
			}
			for test.outcome != served && processes > 0 { // L-35: no process is left for a session
				<-s.process().Closed
				processes--
			}
		})
	}
}

// B-02: the adapter asks a server that is slow to answer server/discover to initialize. That
// makes its process useless, but the server is still modern. The adapter does not ask the next process.
func TestEraLate(t *testing.T) {
	for name, refuses := range map[string]bool{"both eras": false, "one era": true} {
		t.Run(name, func(t *testing.T) {
			first := true
			s := newStage(t, func(o *Options) { o.Limits.Silence = 20 * time.Millisecond }, func(p *script) {
				if first {
					delete(p.Answers, "server/discover")
				}
				first = false
			})
			call := s.post(enveloped("1", "some/method", ""))
			slow := s.process()
			discover, initialize := slow.Next(t), slow.Next(t)
			if string(discover.Envelope.Method) != "server/discover" || string(initialize.Envelope.Method) != "initialize" {
				t.Fatalf("the process is asked for %s and %s", discover.Envelope.Method, initialize.Envelope.Method)
			}
			if refuses {
				slow.Answer(initialize, unknown)
			}
			slow.Answer(discover, sessionlesstest.ModernDiscovery)
			<-slow.Closed
			p := s.process()
			request := p.Next(t)
			if string(request.Envelope.Method) != "some/method" {
				t.Errorf("the fresh process is asked for %s", request.Envelope.Method)
			}
			p.Answer(request, `"result":{}`)
			call.want()
		})
	}
}

// A process that cannot start says nothing about the era.
func TestEraUnknown(t *testing.T) {
	broken := true
	s := newStage(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (mux.Server, error) {
			if broken {
				broken = false
				return nil, errExit
			}
			return acquire(ctx)
		}
	}, nil)
	s.post(enveloped("1", "some/method", "")).wantError(errExit.Error())
	call := s.post(enveloped("1", "some/method", ""))
	p := s.process()
	p.Answer(p.Next(t), `"result":{}`)
	call.want()
}

// Clients that come while a process is started wait for that one.
func TestOneStart(t *testing.T) {
	s := newStage(t, nil, func(p *script) { delete(p.Answers, "server/discover") })
	var calls []*posted
	for range 4 {
		calls = append(calls, s.post(enveloped("1", "some/method", "")))
	}
	p := s.process()
	p.Answer(p.Next(t), sessionlesstest.ModernDiscovery)
	for range calls {
		p.Answer(p.Next(t), `"result":{}`)
	}
	for _, call := range calls {
		call.want()
	}
	if len(s.started) > 0 {
		t.Error("another process was started")
	}
}

func TestEraFlag(t *testing.T) {
	for text, want := range map[string]Era{"Auto": Auto, "Stateful": Legacy, "Stateless": Modern} {
		var era Era
		if err := era.Set(text); err != nil || era != want || era.String() != text {
			t.Errorf("%s: %s, %v", text, era, err)
		}
	}
	var era Era
	if err := era.Set("stateless"); err == nil {
		t.Error("took a wrong one")
	}
}

// The first verdict stays: clients were told of it, and what isolates principals depends on it.
func TestFirstVerdictStays(t *testing.T) {
	s := New(Options{Limits: testLimits()})
	defer s.Close()
	for _, found := range []Era{Auto, Modern, Legacy, Auto} {
		s.learn(verdict{era: found})
	}
	if got := s.Found(); got != Modern {
		t.Errorf("the era is %s, want %s", got, Modern)
	}
}
