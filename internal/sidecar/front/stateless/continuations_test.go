package stateless

import (
	"encoding/base64"
	"testing"
)

func jwt(subject, refreshed string) string {
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"i","sub":"`+subject+`","jti":"`+refreshed+`"}`)) + ".c2ln"
}

// what a server has started for one principal does not exist for others, however they
// spell it. A token that is refreshed changes nothing.
func TestContinuationsBelongToTheirPrincipals(t *testing.T) {
	for name, test := range map[string]struct{ begins, method, member string }{
		"a state": {`"result":{"resultType":"input_required","requestState":"abc","inputRequests":{}}`, "tools/call", "requestState"},
		"a task":  {`"result":{"resultType":"task","taskId":"abc"}`, "tasks/get", "taskId"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, nil)
			begin := s.post(enveloped("1", "tools/call", `"name":"x",`), "Authorization", jwt("anna", "1"))
			p := s.process()
			p.Answer(p.Next(t), test.begins)
			begin.want(200, "abc")
			for _, spelled := range []string{`"abc"`, `"\u0061bc"`} {
				for _, other := range [][]string{{"Authorization", jwt("bert", "1")}, {"Authorization", "Bearer opaque"}, nil} {
					s.post(enveloped("2", test.method, `"name":"x","`+test.member+`":`+spelled+`,`), other...).want(200, `"id":2`, `"code":-32602`)
				}
			}
			again := s.post(enveloped("3", test.method, `"name":"x","`+test.member+`":"abc",`), "Authorization", jwt("anna", "2"))
			p.Answer(p.Next(t), `"result":{"resultType":"complete"}`) // the first that reaches it
			again.want(200, `"id":3`, "complete")
		})
	}
}
