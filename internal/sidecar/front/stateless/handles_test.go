package stateless

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
)

var sharedKey = adapterapi.NewKey()

// byName verifies callers by what they say. It is for tests of what follows.
type byName struct{}

func (byName) Authenticate(r *http.Request) (caller.Caller, *edge.Refusal) {
	user := r.Header.Get("X-User")
	return caller.Caller{Principal: caller.Principal("user " + user), Grant: &access.Grant{Identity: &identity.Identity{User: user}}}, nil
}

// replica is an endpoint with verified callers. All replicas have the same key.
func replica(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, nil, nil)
	held, err := keys.New(adapterapi.Keyring{Current: sharedKey}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.endpoint.options.Handles = handle.New(handle.Options{Keys: held})
	s.change = append(s.change, func(o *edge.Options) { o.Authenticate = byName{} })
	return s
}

// The state of a call belongs to the verified caller that got it, at every replica. For any other caller it does
// not exist, and no process learns that the caller has asked.
func TestStatesOfVerifiedCallers(t *testing.T) {
	one, other := replica(t), replica(t)
	first := one.post(enveloped("1", "tools/call", `"name":"x",`), "X-User", "anna")
	process := one.process()
	process.Answer(process.Next(t), `"result":{"resultType":"input_required","requestState":"abc","inputRequests":{}}`)
	body, err := io.ReadAll(first.response().Body)
	var answer struct {
		Result struct {
			State string `json:"requestState"`
		} `json:"result"`
	}
	if err != nil || json.Unmarshal(body, &answer) != nil || !strings.HasSuffix(answer.Result.State, ".abc") {
		t.Fatalf("anna gets %s, %v", body, err)
	}
	retry := func(state string) string {
		return enveloped("2", "tools/call", `"name":"x","requestState":"`+state+`",`)
	}
	begun := other.post(enveloped("3", "tools/call", `"name":"x",`), "X-User", "anna")
	process = other.process()
	process.Answer(process.Next(t), `"result":{}`)
	begun.want(200)
	for _, s := range []*stage{one, other} {
		s.post(retry(answer.Result.State), "X-User", "bert").want(200, `"id":2`, `"code":-32602`, "requestState invalid or expired")
		s.post(retry("abc"), "X-User", "bert").want(200, `"code":-32602`)
		s.post(retry("abc"), "X-User", "anna").want(200, `"code":-32602`)
	}
	again := other.post(retry(answer.Result.State), "X-User", "anna")
	request := process.Next(t) // the first that reaches it
	if !strings.Contains(strings.ReplaceAll(string(request.Bytes), " ", ""), `"requestState":"abc"`) {
		t.Errorf("the process gets %s", request.Bytes)
	}
	process.Answer(request, `"result":{"resultType":"complete"}`)
	again.want(200, "complete")
}

// A task belongs to the verified caller that began it.
func TestTasksOfVerifiedCallers(t *testing.T) {
	s := replica(t)
	begun := s.post(enveloped("1", "tools/call", `"name":"x",`), "X-User", "anna")
	process := s.process()
	process.Answer(process.Next(t), `"result":{"resultType":"task","taskId":"t1"}`)
	begun.want(200, "t1")
	for user, tasks := range map[string][]string{"bert": {"t1", "t2"}, "anna": {"t2"}} {
		for _, task := range tasks {
			s.post(enveloped("2", "tasks/get", `"taskId":"`+task+`",`), "X-User", user).want(200, `"code":-32602`, "there is no such task")
			s.post(enveloped("3", "subscriptions/listen", `"notifications":{"taskIds":["`+task+`"]},`), "X-User", user).want(200, `"code":-32602`, "there is no such task")
		}
	}
	again := s.post(enveloped("4", "tasks/get", `"taskId":"t1",`), "X-User", "anna")
	process.Answer(process.Next(t), `"result":{"resultType":"complete","taskId":"t1"}`)
	again.want(200, `"id":4`, "complete")
}

// An answer whose handles parsers may read differently does not reach the client.
func TestHandlesThatCannotBeBound(t *testing.T) {
	s := replica(t)
	begun := s.post(enveloped("1", "tools/call", `"name":"x",`), "X-User", "anna")
	process := s.process()
	process.Answer(process.Next(t), `"result":{"resultType":"input_required","requestState":"abc","RequestState":"def"}`)
	begun.want(200, `"id":1`, `"code":-32603`, "cannot be bound")
}
