// Package sessions lists and ends the sessions of clients, at the admin port of an adapter.
package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

var (
	// ErrKey means that the adapter does not accept the key.
	ErrKey = errors.New("the adapter does not accept the key for sessions")
	// ErrUnknown means that no client has a session with that number.
	ErrUnknown = errors.New("no client has a session with this number")
	// ErrOld means that the adapter does not know sessions yet.
	ErrOld = errors.New("the adapter is too old to list sessions")
	// ErrForged means that the answer is not the adapter's.
	ErrForged = errors.New("the answer is not signed with the server's key")
)

// maxAnswer is more than the sessions of the largest pod take.
const maxAnswer = 16 << 20

// Admin is the admin port of one pod.
type Admin struct {
	// Client leads to the admin port, whatever the URL says.
	Client *http.Client
	Key    adapterapi.SessionsKey
	PodUID string
	Now    func() time.Time
}

// List returns the sessions of clients, oldest first.
func (a *Admin) List(ctx context.Context) ([]adapterapi.SessionInfo, error) {
	answer, err := a.ask(ctx, adapterapi.SessionsSubject(a.PodUID))
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, refusal(answer)
	}
	var list adapterapi.SessionList
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		return nil, fmt.Errorf("decode sessions: %w", err)
	}
	return list.Sessions, nil
}

// End ends a session.
func (a *Admin) End(ctx context.Context, number string) error {
	answer, err := a.ask(ctx, adapterapi.SessionEndSubject(a.PodUID, number))
	switch {
	case err != nil:
		return err
	case answer.Status == http.StatusNotFound:
		return ErrUnknown
	case answer.Status != http.StatusNoContent:
		return refusal(answer)
	default:
		return nil
	}
}

// ask makes a request. If the clocks of the user's machine and of the pod's node differ by more than a
// proof may be old, it asks again with the time that the adapter says.
func (a *Admin) ask(ctx context.Context, subject adapterapi.Subject) (adapterapi.Answer, error) {
	answer, theirs, err := a.try(ctx, subject, a.Now())
	if errors.Is(err, ErrKey) && !theirs.IsZero() && a.Now().Sub(theirs).Abs() > adapterapi.Window/2 {
		answer, _, err = a.try(ctx, subject, theirs)
	}
	return answer, err
}

// try makes a request with a proof of that time. It also returns the adapter's own time.
func (a *Admin) try(ctx context.Context, subject adapterapi.Subject, at time.Time) (answer adapterapi.Answer, theirs time.Time, err error) {
	request, err := http.NewRequestWithContext(ctx, subject.Method, "http://127.0.0.1"+subject.Path, http.NoBody)
	if err != nil {
		return answer, theirs, err
	}
	proof, header := a.Key.Prove(subject, at)
	request.Header.Set(adapterapi.HeaderProof, header)
	response, err := a.Client.Do(request)
	if err != nil {
		return answer, theirs, err
	}
	defer func() { _ = response.Body.Close() }()
	answer.Status = response.StatusCode
	if answer.Body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return answer, theirs, fmt.Errorf("read answer: %w", err)
	}
	seal := response.Header.Get(adapterapi.HeaderAnswer)
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		theirs, _ = http.ParseTime(response.Header.Get("Date"))
		return answer, theirs, ErrKey
	case response.StatusCode == http.StatusNotFound && seal == "":
		return answer, theirs, ErrOld
	case !proof.Opens(seal, answer):
		return answer, theirs, ErrForged
	}
	return answer, theirs, nil
}

func refusal(answer adapterapi.Answer) error {
	return fmt.Errorf("the adapter answers with status %d: %s", answer.Status, strings.TrimSpace(string(answer.Body)))
}
