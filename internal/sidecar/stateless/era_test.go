package stateless

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
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
	)
	for name, test := range map[string]struct {
		era       Era
		play      func(process int, p *script)
		status    int
		processes int
	}{
		"modern": {Auto, func(int, *script) {}, served, 1},
		"legacy": {Auto, func(_ int, p *script) { p.answers["server/discover"] = unknown }, translated, 1},
		"legacy, silent": {Auto, func(_ int, p *script) {
			p.answers["server/discover"], p.answers["initialize"] = "", initialized
		}, translated, 1},
		"refuses, silent": {Auto, func(_ int, p *script) {
			p.answers["server/discover"], p.answers["initialize"] = "", unknown
		}, 503, 1},
		"silent": {Auto, func(_ int, p *script) {
			p.answers["server/discover"], p.answers["initialize"] = "", ""
		}, 503, 1},
		"dies of it, legacy": {Auto, func(process int, p *script) {
			delete(p.answers, "server/discover")
			p.answers["initialize"] = initialized
			if process == 1 {
				go func() {
					<-p.sent
					p.end(errExit)
				}()
			}
		}, translated, 2},
		"dies of everything": {Auto, func(_ int, p *script) {
			delete(p.answers, "server/discover")
			go func() {
				<-p.sent
				p.end(errExit)
			}()
		}, 503, 2},
		"pinned to modern": {Modern, func(_ int, p *script) { p.answers["server/discover"] = unknown }, served, 1},
		"pinned to legacy": {Legacy, func(int, *script) {}, translated, 0},
	} {
		t.Run(name, func(t *testing.T) {
			processes := 0
			s := newStage(t, func(o *Options) {
				o.Era = test.era
				if strings.HasSuffix(name, "silent") { // a slow machine must not make others so
					o.Limits.Silence = 20 * time.Millisecond
					if test.status == 503 {
						o.Limits.StartTimeout = 100 * time.Millisecond
					}
				}
			}, func(p *script) {
				processes++
				test.play(processes, p)
			})
			call := s.post(enveloped(`"e"`, "some/method", ""))
			if test.status <= translated {
				var p *script
				if test.status == served {
					p = s.process()
				} else {
					await(t, "a stand-in", func() bool { return s.endpoint.process.isRunning() })
					p = s.standIn
				}
				p.answer(p.next(t), `"result":{}`)
				call.want(200, `"result":{}`)
				call = s.post(enveloped(`"f"`, "some/method", ""))
				p.answer(p.next(t), `"result":{}`)
				call.want(200)
			} else {
				call.want(test.status, `"id":"e"`)
			}
			if processes != test.processes {
				t.Errorf("%d processes were started, want %d", processes, test.processes)
			}
			for test.status != served && processes > 0 { // L-35: none is left for anybody
				<-s.process().closed
				processes--
			}
		})
	}
}

// B-02: a server that is slow to answer server/discover is asked to initialize, which
// makes its process useless, but is modern all the same. The next process is not asked.
func TestEraLate(t *testing.T) {
	for name, refuses := range map[string]bool{"both eras": false, "one era": true} {
		t.Run(name, func(t *testing.T) {
			first := true
			s := newStage(t, func(o *Options) { o.Limits.Silence = 20 * time.Millisecond }, func(p *script) {
				if first {
					delete(p.answers, "server/discover")
				}
				first = false
			})
			call := s.post(enveloped("1", "some/method", ""))
			slow := s.process()
			discover, initialize := slow.next(t), slow.next(t)
			if string(discover.Envelope.Method) != "server/discover" || string(initialize.Envelope.Method) != "initialize" {
				t.Fatalf("the process is asked for %s and %s", discover.Envelope.Method, initialize.Envelope.Method)
			}
			if refuses {
				slow.answer(initialize, unknown)
			}
			slow.answer(discover, modernDiscovery)
			<-slow.closed
			p := s.process()
			request := p.next(t)
			if string(request.Envelope.Method) != "some/method" {
				t.Errorf("the fresh process is asked for %s", request.Envelope.Method)
			}
			p.answer(request, `"result":{}`)
			call.want(200)
		})
	}
}

// A process that cannot be had is no verdict.
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
	s.post(enveloped("1", "some/method", "")).want(503, errExit.Error())
	call := s.post(enveloped("1", "some/method", ""))
	p := s.process()
	p.answer(p.next(t), `"result":{}`)
	call.want(200)
}

// Clients that come while a process is started wait for that one.
func TestOneStart(t *testing.T) {
	s := newStage(t, nil, func(p *script) { delete(p.answers, "server/discover") })
	var calls []*posted
	for range 4 {
		calls = append(calls, s.post(enveloped("1", "some/method", "")))
	}
	p := s.process()
	p.answer(p.next(t), modernDiscovery)
	for range calls {
		p.answer(p.next(t), `"result":{}`)
	}
	for _, call := range calls {
		call.want(200)
	}
	if len(s.started) > 0 {
		t.Error("another process was started")
	}
}

func TestEraFlag(t *testing.T) {
	for text, want := range map[string]Era{"auto": Auto, "legacy": Legacy, "modern": Modern} {
		var era Era
		if err := era.Set(text); err != nil || era != want || era.String() != text {
			t.Errorf("%s: %s, %v", text, era, err)
		}
	}
	var era Era
	if err := era.Set("Modern"); err == nil {
		t.Error("took a wrong one")
	}
}

// isRunning says whether there is something that serves clients.
func (p *process) isRunning() bool {
	_, ok := p.Current()
	return ok
}
