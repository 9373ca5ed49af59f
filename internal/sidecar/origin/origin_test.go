package origin

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// What could never be the value of a header is refused before it is relied on.
func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		policy Policy
		want   string
	}{
		"nothing":             {Policy{}, ""},
		"what there may be":   {Policy{Origins: []string{"https://chat.example.com", "http://a:8080", "vscode-webview://x", "*", "null"}, Hosts: []string{"a", "a.b:80", "[::1]:80", "*"}}, ""},
		"no scheme":           {Policy{Origins: []string{"https://ok.example", "example.com"}}, `allowed-origin "example.com" can never match: write it with its scheme and without a path, as in https://chat.example.com`},
		"a path":              {Policy{Origins: []string{"https://example.com/"}}, `allowed-origin "https://example.com/" can never match`},
		"empty":               {Policy{Origins: []string{""}}, `allowed-origin "" can never match`},
		"a host with scheme":  {Policy{Hosts: []string{"https://example.com"}}, `allowed-host "https://example.com" can never match: write a name, with or without a port, as in mcp.example.com`},
		"a host that is none": {Policy{Hosts: []string{""}}, `allowed-host "" can never match`},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.policy.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	inPod := Policy{
		Origins: []string{"https://chat.example.com"},
		Hosts:   []string{"everything", "everything.team.svc", "mcp.example.com:8443"},
	}
	for name, test := range map[string]struct {
		policy       Policy
		host, origin string
		want         bool
	}{
		"by Service name":              {inPod, "everything.team.svc", "", true},
		"by Service name and port":     {inPod, "everything.team.svc:80", "", true},
		"in another case":              {inPod, "Everything.Team.SVC", "", true},
		"by pod address":               {inPod, "10.244.1.7:16270", "", true},
		"by pod address, IPv6":         {inPod, "[fd00::7]:16270", "", true},
		"by port-forward":              {inPod, "localhost:8080", "", true},
		"by ingress":                   {inPod, "mcp.example.com:8443", "", true},
		"by ingress, other port":       {inPod, "mcp.example.com:9999", "", false},
		"R53 rebound name":             {inPod, "evil.example.com", "", false},
		"R53 rebound name that agrees": {inPod, "evil.example.com", "http://evil.example.com", false},
		"name that ends like ours":     {inPod, "evil-everything.team.svc", "", false},
		"T-02 allowed origin":          {inPod, "everything", "https://chat.example.com", true},
		"T-02 other origin":            {inPod, "everything", "https://evil.example.com", false},
		"origin with a longer name":    {inPod, "everything", "https://chat.example.com.evil.com", false},
		"origin of another scheme":     {inPod, "everything", "http://chat.example.com", false},
		"X-04 loopback origin":         {inPod, "everything", "http://localhost:6274", true},
		"loopback address as origin":   {inPod, "everything", "http://127.0.0.1:6274", true},
		"opaque origin":                {inPod, "everything", "null", false},
		"name with localhost in it":    {inPod, "everything", "http://localhost.evil.com", false},
		"file":                         {inPod, "everything", "file://localhost", false},
		"any origin":                   {Policy{Origins: []string{Any}}, "x", "https://evil.example.com", true},
		"any host":                     {Policy{Hosts: []string{Any}}, "x", "", true},
		"no list of hosts":             {Policy{}, "whatever.example", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/mcp", nil)
			r.Host = test.host
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			if err := test.policy.Check(r, &Names{}); (err == nil) != test.want {
				t.Errorf("got %v, want allowed: %v", err, test.want)
			}
		})
	}
}
