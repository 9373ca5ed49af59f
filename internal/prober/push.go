package prober

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/text"
)

// firstPushRetry is soon: people wait for what they have changed.
const firstPushRetry = 500 * time.Millisecond

// lags says whether the adapter takes settings and goes by others than it should. One
// that takes none is of a template that has everything in flags.
func (i *instance) lags() bool { return i.inEffect != nil && i.inEffect.Lacks(i.Settings) }

// pushNow says whether it is to be sent its settings.
func (i *instance) pushNow(now time.Time) bool { return i.lags() && !now.Before(i.pushAt) }

// send sends an instance its settings, before it is asked anything, and says whether that
// was all: who does not answer in time is not asked for more by the same job.
func (p *Prober) send(ctx context.Context, j *job, a *answer) (over bool) {
	ctx, cancel := context.WithTimeout(ctx, j.asks.Timeout)
	defer cancel()
	a.pushed, a.sent = true, j.asks.Settings.Digest
	a.pushErr = p.metrics.timed(kindPush, func() (err error) {
		a.state, err = p.push(ctx, j.asks)
		return err
	})
	a.late = errors.Is(ctx.Err(), context.DeadlineExceeded) && silent(a.pushErr)
	return a.late
}

// settlePush takes in what came of sending settings.
func (p *Prober) settlePush(i *instance, a answer, now time.Time) {
	log := p.options.Log.WithValues("MCPServer", klog.KRef(i.server.name.Namespace, i.server.name.Name),
		"Pod", klog.KRef(i.Pod.Namespace, i.Pod.Name), "generation", i.Settings.Generation)
	present := a.sent == i.Settings.Digest // or else others are wanted by now, and are sent next
	if a.pushErr != nil {
		if !present {
			return
		}
		i.pushFails++
		i.pushAt = now.Add(jitter(backOff(firstPushRetry, i.pushFails, lastRetry)))
		if i.pushFails == patience {
			log.Info("An adapter does not take its settings; they reach it by its volume when the kubelet brings that up to date", "reason", a.pushErr.Error())
		}
		return
	}
	i.pushed = true
	if present {
		i.pushFails, i.pushAt = 0, now.Add(firstRetry) // should it lose them
	}
	if !a.asked || a.askErr != nil { // or else it was asked since, which tells more
		i.inEffect, i.etag = &a.state, ""
	}
	log.V(1).Info("Sent an adapter its settings", "inEffect", a.state.Generation)
}

// pushFailure is failure for a push.
func pushFailure(class mcpprobe.Class, status int, detail string) error {
	return &mcpprobe.Error{Class: class, Op: "settings", Status: status, Detail: detail}
}

// push sends an adapter its settings, and returns what it goes by then. That can be
// newer than what was sent.
func (a *asker) push(ctx context.Context, i Instance) (adapterapi.SettingsState, error) {
	var state adapterapi.SettingsState
	url := "http://" + address(i.IP, a.adminPort) + adapterapi.PathSettings
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(i.Settings.Text))
	if err != nil {
		return state, pushFailure(mcpprobe.Protocol, 0, "the pod has no address that can be asked")
	}
	proof, header := adapterapi.NewProof(i.Key, adapterapi.SettingsSubject(string(i.UID)), time.Now())
	request.Header.Set(adapterapi.HeaderProof, header)
	request.Header.Set(adapterapi.HeaderBody, proof.SealBody([]byte(i.Settings.Text)))
	response, err := a.http.Do(request)
	if err != nil {
		return state, lostPush(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return state, lostPush(ctx, err)
	}
	status := response.StatusCode
	if !proof.Opens(response.Header.Get(adapterapi.HeaderAnswer), adapterapi.Answer{Status: status, Body: body}) {
		return state, pushFailure(mcpprobe.Unreachable, status, "the answer does not carry the adapter's signature")
	}
	if status != http.StatusOK && status != http.StatusConflict { // which is that it has newer ones
		return state, pushFailure(mcpprobe.Protocol, status, text.Line(string(body), maxWords))
	}
	if err := json.Unmarshal(body, &state); err != nil {
		return state, pushFailure(mcpprobe.Protocol, status, "the answer is not that of an adapter")
	}
	return state, nil
}

// lostPush is for a push without an answer.
func lostPush(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return pushFailure(mcpprobe.Canceled, 0, "")
	case ctx.Err() != nil || isTimeout(err):
		return pushFailure(mcpprobe.Timeout, 0, "")
	default:
		return pushFailure(mcpprobe.Unreachable, 0, innermost(err))
	}
}
