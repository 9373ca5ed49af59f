package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

func user(name string) adapterapi.AccessSubject {
	return adapterapi.AccessSubject{Kind: adapterapi.SubjectUser, Name: name}
}

func group(name string) adapterapi.AccessSubject {
	return adapterapi.AccessSubject{Kind: adapterapi.SubjectGroup, Name: name}
}

func oauthClient(name string) adapterapi.AccessSubject {
	return adapterapi.AccessSubject{Kind: adapterapi.SubjectClient, Name: name}
}

type (
	subjects = []adapterapi.AccessSubject
	names    = []string
)

func compile(tb testing.TB, access adapterapi.Access) *Policy {
	tb.Helper()
	policy, err := Compile(&access)
	if err != nil {
		tb.Fatal(err)
	}
	return policy
}

func token(user string, scopes ...string) *identity.Identity {
	issuer, _, _ := strings.Cut(user, ":")
	return &identity.Identity{Issuer: issuer, User: user, Groups: names{adapterapi.GroupAuthenticated}, Scopes: scopes}
}

func serviceAccount(name string) *identity.Identity {
	return &identity.Identity{
		Issuer: adapterapi.KubernetesIssuer, User: "system:serviceaccount:agents:" + name,
		Groups: names{"system:serviceaccounts", "system:serviceaccounts:agents", adapterapi.GroupAuthenticated},
	}
}

// decide scans and decides, as the adapter does.
func decide(tb testing.TB, r *Rights, text string) Decision {
	tb.Helper()
	message := []byte(text)
	e, err := rpc.Scan(message)
	if err != nil {
		tb.Fatalf("scan %s: %v", text, err)
	}
	return r.Decide(message, &e)
}

func request(method, params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + params + `}}`
}

func callTool(name string) string { return request("tools/call", `"name":"`+name+`"`) }

func getPrompt(name string) string { return request("prompts/get", `"name":"`+name+`"`) }

func read(uri string) string { return request("resources/read", `"uri":"`+uri+`"`) }

func complete(ref string) string {
	return request("completion/complete", `"ref":{`+ref+`},"argument":{"name":"a","value":""}`)
}

func listen(filter string) string {
	return request("subscriptions/listen", `"notifications":{`+filter+`}`)
}

// office is a policy with one of everything.
var office = adapterapi.Access{
	Mode:   adapterapi.AccessRequired,
	Scopes: names{"mcp:use"},
	Rules: []adapterapi.AccessRule{
		{Subjects: subjects{user("corp:ann")}, Tools: names{"search", "list_*", "*_info", "*mid*"}, Prompts: names{"greet"}, Resources: names{"docs://handbook/", "docs://index"}},
		{Subjects: subjects{user("corp:ann"), group("corp:writers")}, Tools: names{"write"}, Scopes: names{"write", "more"}},
		{Subjects: subjects{user("corp:ann")}, Tools: names{"write"}, Scopes: names{"write"}},
		{Subjects: subjects{user("corp:root"), user("corp:mallory"), user("system:serviceaccount:agents:root")}, Tools: names{"*"}, Prompts: names{"*"}, Resources: names{"*"}},
		{Subjects: subjects{user("corp:stepper")}, Tools: names{"*"}, Prompts: names{"*"}, Resources: names{"*"}, Scopes: names{"all"}},
		{Subjects: subjects{group("corp:readers"), oauthClient("corp:bot")}, Resources: names{"*"}},
		{Subjects: subjects{group(adapterapi.GroupAuthenticated)}, Prompts: names{"tour"}, Scopes: names{"tour"}},
		{Subjects: subjects{group("system:serviceaccounts:agents")}, Tools: names{"triage"}},
		{Subjects: subjects{group(adapterapi.GroupUnauthenticated)}, Tools: names{"*"}},
	},
	Blocked: subjects{user("corp:mallory"), oauthClient("corp:stolen")},
	Hidden:  names{"admin_*", "list_secrets", "*_debug"},
}

func ann(scopes ...string) *identity.Identity { return token("corp:ann", append(scopes, "mcp:use")...) }

func with(who *identity.Identity, groups names, client string) *identity.Identity {
	who.Groups, who.Client = append(who.Groups, groups...), client
	return who
}

// Every method of the table of section 6, each with callers of several kinds.
func TestDecide(t *testing.T) {
	var (
		root    = token("corp:root", "mcp:use")
		reader  = with(token("corp:rita", "mcp:use"), names{"corp:readers"}, "")
		account = serviceAccount("triage")
	)
	allowed := func(kind Kind, rule int) Decision { return Decision{Kind: kind, Rule: rule} }
	free := allowed("", -1)
	denied := func(why Denial, kind Kind) Decision { return Decision{Denied: why, Kind: kind, Rule: -1} }
	lacks := func(kind Kind, scopes ...string) Decision {
		return Decision{Denied: DeniedScope, Kind: kind, Rule: -1, Scopes: scopes}
	}
	tests := map[string]struct {
		who     *identity.Identity
		message string
		want    Decision
	}{
		"initialize":                    {ann(), request("initialize", ""), free},
		"initialize, by no rule's":      {serviceAccountOf("other"), request("initialize", ""), denied(DeniedRule, "")},
		"initialize, without base":      {token("corp:ann"), request("initialize", ""), lacks("", "mcp:use")},
		"initialize, account":           {account, request("initialize", ""), free},
		"initialize, no caller":         {nil, request("initialize", ""), denied(DeniedRule, "")},
		"initialize, blocked":           {token("corp:mallory", "mcp:use"), request("initialize", ""), denied(DeniedBlock, "")},
		"initialize, blocked client":    {with(token("corp:ann", "mcp:use"), nil, "corp:stolen"), request("initialize", ""), denied(DeniedBlock, "")},
		"initialize, only with scopes":  {token("corp:zoe", "mcp:use"), request("initialize", ""), free},
		"discover":                      {ann(), request("server/discover", ""), free},
		"ping":                          {ann(), request("ping", ""), free},
		"ping, blocked":                 {token("corp:mallory"), request("ping", ""), denied(DeniedBlock, "")},
		"level":                         {ann(), request("logging/setLevel", `"level":"info"`), free},
		"notification":                  {ann(), `{"jsonrpc":"2.0","method":"notifications/anything"}`, free},
		"notification, no caller":       {nil, `{"jsonrpc":"2.0","method":"notifications/anything"}`, denied(DeniedRule, "")},
		"notification as a request":     {ann(), request("notifications/anything", ""), denied(DeniedKind, "")},
		"answer":                        {ann(), `{"jsonrpc":"2.0","id":7,"result":{}}`, free},
		"answer, error":                 {ann(), `{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":""}}`, free},
		"answer, no caller":             {nil, `{"jsonrpc":"2.0","id":7,"result":{}}`, denied(DeniedRule, "")},
		"answer, blocked":               {token("corp:mallory"), `{"jsonrpc":"2.0","id":7,"result":{}}`, denied(DeniedBlock, "")},
		"list of tools":                 {ann(), request("tools/list", ""), free},
		"list of prompts":               {account, request("prompts/list", ""), free},
		"list of resources":             {account, request("resources/list", ""), free},
		"list of templates":             {account, request("resources/templates/list", ""), free},
		"list, without base":            {token("corp:ann"), request("tools/list", ""), lacks("", "mcp:use")},
		"list, no caller":               {nil, request("tools/list", ""), denied(DeniedRule, "")},
		"task":                          {ann(), request("tasks/get", `"taskId":"t"`), free},
		"task, no caller":               {nil, request("tasks/get", `"taskId":"t"`), denied(DeniedRule, "")},
		"tool, exact":                   {ann(), callTool("search"), allowed(Tools, 0)},
		"tool, longer":                  {ann(), callTool("search2"), denied(DeniedRule, Tools)},
		"tool, shorter":                 {ann(), callTool("searc"), denied(DeniedRule, Tools)},
		"tool, other case":              {ann(), callTool("Search"), denied(DeniedRule, Tools)},
		"tool, escaped":                 {ann(), callTool(`se\u0061rch`), allowed(Tools, 0)},
		"tool, with NUL":                {ann(), callTool(`search\u0000`), denied(DeniedRule, Tools)},
		"tool, prefix":                  {ann(), callTool("list_a"), allowed(Tools, 0)},
		"tool, prefix alone":            {ann(), callTool("list_"), allowed(Tools, 0)},
		"tool, prefix inside":           {ann(), callTool("xlist_a"), denied(DeniedRule, Tools)},
		"tool, suffix":                  {ann(), callTool("a_info"), allowed(Tools, 0)},
		"tool, suffix inside":           {ann(), callTool("a_infos"), denied(DeniedRule, Tools)},
		"tool, middle":                  {ann(), callTool("amidst"), allowed(Tools, 0)},
		"tool, empty":                   {ann(), callTool(""), denied(DeniedRule, Tools)},
		"tool, hidden":                  {ann(), callTool("list_secrets"), denied(DeniedRule, Tools)},
		"tool, hidden from root":        {root, callTool("admin_x"), denied(DeniedRule, Tools)},
		"tool, hidden by its end":       {root, callTool("x_debug"), denied(DeniedRule, Tools)},
		"tool, root":                    {root, callTool("anything"), allowed(Tools, 3)},
		"tool, root, empty":             {root, callTool(""), allowed(Tools, 3)},
		"tool, account":                 {account, callTool("triage"), allowed(Tools, 7)},
		"tool, account's, of ann":       {ann(), callTool("triage"), denied(DeniedRule, Tools)},
		"tool, no caller":               {nil, callTool("search"), denied(DeniedRule, Tools)},
		"tool, blocked":                 {token("corp:mallory", "mcp:use"), callTool("search"), denied(DeniedBlock, Tools)},
		"tool without a name":           {ann(), request("tools/call", ""), denied(DeniedName, Tools)},
		"tool without a name, root":     {root, request("tools/call", `"uri":"search"`), denied(DeniedName, Tools)},
		"tool, name a list":             {root, request("tools/call", `"name":["search"]`), denied(DeniedName, Tools)},
		"tool without params":           {ann(), `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, denied(DeniedName, Tools)},
		"tool in a notification":        {ann(), `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"drop"}}`, denied(DeniedRule, Tools)},
		"tool, scope held":              {ann("write"), callTool("write"), allowed(Tools, 2)},
		"tool, both scopes held":        {ann("write", "more"), callTool("write"), allowed(Tools, 1)},
		"tool, scope lacks":             {ann(), callTool("write"), lacks(Tools, "mcp:use", "write")},
		"tool, scope and base lack":     {token("corp:ann"), callTool("write"), lacks(Tools, "mcp:use", "write")},
		"tool, base lacks":              {token("corp:ann"), callTool("search"), lacks(Tools, "mcp:use")},
		"tool, base lacks, no rule":     {token("corp:ann"), callTool("drop"), denied(DeniedRule, Tools)},
		"tool, one of two scopes lacks": {with(token("corp:will", "mcp:use", "write"), names{"corp:writers"}, ""), callTool("write"), lacks(Tools, "mcp:use", "write", "more")},
		"prompt":                        {ann(), getPrompt("greet"), allowed(Prompts, 0)},
		"prompt, a tool's name":         {ann(), getPrompt("search"), denied(DeniedRule, Prompts)},
		"prompt, hidden is for tools":   {root, getPrompt("admin_x"), allowed(Prompts, 3)},
		"prompt, for scope":             {ann("tour"), getPrompt("tour"), allowed(Prompts, 6)},
		"prompt, scope lacks":           {ann(), getPrompt("tour"), lacks(Prompts, "mcp:use", "tour")},
		"prompt, an account has none":   {account, getPrompt("tour"), denied(DeniedRule, Prompts)},
		"prompt without a name":         {ann(), request("prompts/get", `"name":1`), denied(DeniedName, Prompts)},
		"resource, exact":               {ann(), read("docs://index"), allowed(Resources, 0)},
		"resource, longer":              {ann(), read("docs://index2"), denied(DeniedRule, Resources)},
		"resource, below an exact one":  {ann(), read("docs://index/a"), denied(DeniedRule, Resources)},
		"resource, prefix":              {ann(), read("docs://handbook/a/b"), allowed(Resources, 0)},
		"resource, prefix alone":        {ann(), read("docs://handbook/"), allowed(Resources, 0)},
		"resource, prefix unfinished":   {ann(), read("docs://handbook"), denied(DeniedRule, Resources)},
		"resource, not below":           {ann(), read("docs://handbooks/a"), denied(DeniedRule, Resources)},
		"resource, other case":          {ann(), read("DOCS://handbook/a"), denied(DeniedRule, Resources)},
		"resource, dots":                {ann(), read("docs://handbook/../a"), denied(DeniedURI, Resources)},
		"resource, one dot":             {ann(), read("docs://handbook/a.md"), allowed(Resources, 0)},
		"resource, dots escaped":        {ann(), read("docs://handbook/%2e%2E/a"), denied(DeniedURI, Resources)},
		"resource, dot escaped":         {ann(), read("docs://handbook/.%2E/a"), denied(DeniedURI, Resources)},
		"resource, slash escaped":       {ann(), read("docs://handbook/a%2Fb"), denied(DeniedURI, Resources)},
		"resource, slash escaped, low":  {ann(), read("docs://handbook/a%2fb"), denied(DeniedURI, Resources)},
		"resource, backslash escaped":   {ann(), read("docs://handbook/a%5Cb"), denied(DeniedURI, Resources)},
		"resource, backslash":           {ann(), read(`docs://handbook/a\\b`), denied(DeniedURI, Resources)},
		"resource, NUL":                 {ann(), read(`docs://handbook/a\u0000`), denied(DeniedURI, Resources)},
		"resource, DEL":                 {ann(), read(`docs://handbook/a\u007f`), denied(DeniedURI, Resources)},
		"resource, C1":                  {ann(), read(`docs://handbook/a\u0085`), denied(DeniedURI, Resources)},
		"resource, other escapes":       {ann(), read("docs://handbook/a%20b%C3%A9é"), allowed(Resources, 0)},
		"resource, cut escape":          {ann(), read("docs://handbook/a%2"), allowed(Resources, 0)},
		"resource, reader":              {reader, read("file:///etc/../etc/passwd"), allowed(Resources, 5)},
		"resource, reader's client":     {with(token("corp:tom", "mcp:use"), nil, "corp:bot"), read("a:b"), allowed(Resources, 5)},
		"resource without a URI":        {reader, request("resources/read", `"name":"a"`), denied(DeniedName, Resources)},
		"subscribe":                     {ann(), request("resources/subscribe", `"uri":"docs://index"`), allowed(Resources, 0)},
		"subscribe, denied":             {ann(), request("resources/subscribe", `"uri":"docs://x"`), denied(DeniedRule, Resources)},
		"unsubscribe":                   {ann(), request("resources/unsubscribe", `"uri":"docs://index"`), allowed(Resources, 0)},
		"unsubscribe, denied":           {ann(), request("resources/unsubscribe", `"uri":"docs://x"`), denied(DeniedRule, Resources)},
		"listen to lists":               {account, listen(`"toolsListChanged":true,"promptsListChanged":true`), free},
		"listen to nothing":             {account, request("subscriptions/listen", ""), free},
		"listen to null":                {account, listen(`"resourceSubscriptions":null`), free},
		"listen to no resource":         {account, listen(`"resourceSubscriptions":[]`), free},
		"listen, without base":          {token("corp:ann"), listen(""), lacks("", "mcp:use")},
		"listen to resources":           {ann(), listen(`"resourceSubscriptions":["docs://index","docs://handbook/a"]`), allowed(Resources, 0)},
		"listen to one too many":        {ann(), listen(`"resourceSubscriptions":["docs://index","docs://x"]`), denied(DeniedRule, Resources)},
		"listen to an odd one":          {ann(), listen(`"resourceSubscriptions":["docs://handbook/.."]`), denied(DeniedURI, Resources)},
		"listen to a number":            {reader, listen(`"resourceSubscriptions":["a:b",1]`), denied(DeniedName, Resources)},
		"listen to half a character":    {reader, listen(`"resourceSubscriptions":["\ud800"]`), denied(DeniedName, Resources)},
		"listen, twice":                 {ann(), listen(`"resourceSubscriptions":[],"resourceSubscriptions":["docs://x"]`), denied(DeniedName, "")},
		"listen, other case":            {ann(), listen(`"ResourceSubscriptions":["docs://x"]`), denied(DeniedName, "")},
		"listen, no list":               {ann(), listen(`"resourceSubscriptions":"docs://x"`), denied(DeniedName, "")},
		"listen, filter twice":          {ann(), request("subscriptions/listen", `"notifications":{},"Notifications":{"resourceSubscriptions":["docs://x"]}`), denied(DeniedName, "")},
		"listen, filter no object":      {ann(), request("subscriptions/listen", `"notifications":["docs://x"]`), denied(DeniedName, "")},
		"complete, prompt":              {ann(), complete(`"type":"ref/prompt","name":"greet"`), allowed(Prompts, 0)},
		"complete, other prompt":        {ann(), complete(`"type":"ref/prompt","name":"x"`), denied(DeniedRule, Prompts)},
		"complete, prompt's scope":      {ann(), complete(`"type":"ref/prompt","name":"tour"`), lacks(Prompts, "mcp:use", "tour")},
		"complete, template":            {ann(), complete(`"type":"ref/resource","uri":"docs://handbook/{page}"`), allowed(Resources, 0)},
		"complete, wider template":      {ann(), complete(`"type":"ref/resource","uri":"docs://{book}/"`), denied(DeniedRule, Resources)},
		"complete, template of one":     {ann(), complete(`"type":"ref/resource","uri":"docs://index{?page}"`), denied(DeniedRule, Resources)},
		"complete, odd template":        {ann(), complete(`"type":"ref/resource","uri":"docs://handbook/{page}/.."`), denied(DeniedURI, Resources)},
		"complete, URI":                 {ann(), complete(`"type":"ref/resource","uri":"docs://index"`), allowed(Resources, 0)},
		"complete, any template":        {reader, complete(`"type":"ref/resource","uri":"{+uri}"`), allowed(Resources, 5)},
		"complete, no type":             {ann(), complete(`"name":"greet"`), denied(DeniedName, "")},
		"complete, other type":          {ann(), complete(`"type":"ref/tool","name":"greet"`), denied(DeniedName, "")},
		"complete, both":                {ann(), complete(`"type":"ref/prompt","name":"greet","uri":"docs://x"`), denied(DeniedName, "")},
		"complete, both, resource":      {ann(), complete(`"type":"ref/resource","name":"x","uri":"docs://index"`), denied(DeniedName, "")},
		"complete, type twice":          {ann(), complete(`"type":"ref/prompt","Type":"ref/resource","name":"greet"`), denied(DeniedName, "")},
		"complete, name twice":          {ann(), complete(`"type":"ref/prompt","name":"greet","name\u0000":"x"`), denied(DeniedName, "")},
		"complete, name a number":       {ann(), complete(`"type":"ref/prompt","name":1`), denied(DeniedName, Prompts)},
		"complete, half a character":    {root, complete(`"type":"ref/prompt","name":"\ud800"`), denied(DeniedName, Prompts)},
		"complete, ref twice":           {ann(), request("completion/complete", `"ref":{"type":"ref/prompt","name":"greet"},"REF":{}`), denied(DeniedName, "")},
		"complete without a ref":        {ann(), request("completion/complete", ``), denied(DeniedName, "")},
		"unknown":                       {ann(), request("tools/callMany", `"name":"search"`), denied(DeniedKind, "")},
		"unknown, for root":             {root, request("tools/callMany", ""), free},
		"unknown, for a reader":         {reader, request("resources/write", ""), denied(DeniedKind, "")},
		"unknown, scope lacks":          {token("corp:stepper", "mcp:use"), request("x/y", ""), lacks("", "mcp:use", "all")},
		"unknown, all scopes lack":      {token("corp:stepper"), request("x/y", ""), lacks("", "mcp:use", "all")},
		"unknown notification":          {ann(), `{"jsonrpc":"2.0","method":"tools/callMany"}`, denied(DeniedKind, "")},
		"unknown, other case":           {ann(), request("Tools/Call", `"name":"search"`), denied(DeniedKind, "")},
		"unknown, blank":                {ann(), request("tools/call ", `"name":"search"`), denied(DeniedKind, "")},
	}
	policy := compile(t, office)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(t, policy.For(test.who), test.message)
			if (got.Text == "") != (got.Denied == Allowed) {
				t.Errorf("text is %q", got.Text)
			}
			got.Text = ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// serviceAccountOf is one of another namespace, which no rule is for.
func serviceAccountOf(name string) *identity.Identity {
	return &identity.Identity{Issuer: adapterapi.KubernetesIssuer, User: "system:serviceaccount:other:" + name, Groups: names{adapterapi.GroupAuthenticated}}
}

// A message that several rules are about needs the scopes of all of them. A client that asks for these, and for
// no others, can send it then.
func TestAllScopesThatAMessageNeeds(t *testing.T) {
	everybody := subjects{group(adapterapi.GroupAuthenticated)}
	policy := compile(t, adapterapi.Access{
		Mode: adapterapi.AccessRequired, Scopes: names{"use"},
		Rules: []adapterapi.AccessRule{
			{Subjects: everybody, Tools: names{"*"}, Prompts: names{"*"}},
			{Subjects: everybody, Resources: names{"a:/"}, Scopes: names{"a"}},
			{Subjects: everybody, Resources: names{"b:/"}, Scopes: names{"b", "more"}},
			{Subjects: everybody, Resources: names{"*"}, Scopes: names{"all"}},
		},
	})
	tests := map[string]struct {
		held    names
		message string
		want    names
	}{
		"one":              {names{"use"}, read("b:/1"), names{"use", "all"}},
		"the nearest":      {names{"use", "more"}, read("b:/1"), names{"use", "b", "more"}},
		"one held of two":  {names{"use", "a", "b"}, listen(`"resourceSubscriptions":["a:/1","b:/1"]`), names{"use", "a", "b", "more"}},
		"none held of two": {nil, listen(`"resourceSubscriptions":["a:/1","c:/1"]`), names{"use", "a", "all"}},
		"everything":       {names{"use"}, request("x/y", ""), names{"use", "all"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(t, policy.For(token("corp:ann", test.held...)), test.message)
			if diff := cmp.Diff(test.want, got.Scopes); diff != "" || got.Denied != DeniedScope {
				t.Errorf("denied for %q, scopes (-want +got):\n%s", got.Denied, diff)
			}
			if then := decide(t, policy.For(token("corp:ann", got.Scopes...)), test.message); then.Denied != Allowed {
				t.Errorf("with these scopes: %s", then.Text)
			}
		})
	}
}

// The text for the client has the name as the caller gave it, made safe to show, and nothing else that
// the server has.
func TestDecideText(t *testing.T) {
	rights := compile(t, office).For(ann())
	tests := map[string]struct{ message, want string }{
		"tool":     {callTool("drop"), `no rule of this server allows you to call the tool "drop"`},
		"hidden":   {callTool("admin_x"), `no rule of this server allows you to call the tool "admin_x"`},
		"prompt":   {getPrompt("drop"), `no rule of this server allows you to use the prompt "drop"`},
		"resource": {read("docs://x"), `no rule of this server allows you to use the resource "docs://x"`},
		"long":     {callTool(strings.Repeat("é", 1000)), `no rule of this server allows you to call the tool "` + strings.Repeat("é", 128) + `…"`},
		"control":  {callTool(`a\u001b[2J\nb`), "no rule of this server allows you to call the tool \"a\ufffd[2J b\""},
		"scopes":   {callTool("write"), `your token lacks scopes that this needs: write`},
		"template": {complete(`"type":"ref/resource","uri":"docs://{a}"`), `no rule of this server allows you to use the resource "docs://{a}"`},
		"method":   {request("x/y", ""), `the rules of this server say nothing of the method "x/y"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := decide(t, rights, test.message).Text; got != test.want {
				t.Errorf("text:\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	tests := map[string]struct {
		message string
		want    Denial
	}{
		"initialize":   {request("initialize", ""), Allowed},
		"discover":     {request("server/discover", ""), Allowed},
		"ping":         {request("ping", ""), Allowed},
		"tools":        {request("tools/list", ""), Allowed},
		"prompts":      {request("prompts/list", ""), Allowed},
		"resources":    {request("resources/list", ""), Allowed},
		"templates":    {request("resources/templates/list", ""), Allowed},
		"notification": {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, Allowed},
		"answer":       {`{"jsonrpc":"2.0","id":1,"result":{}}`, Allowed},
		"call":         {callTool("a"), DeniedRule},
		"call, bare":   {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`, DeniedRule},
		"prompt":       {getPrompt("a"), DeniedRule},
		"resource":     {read("a:b"), DeniedRule},
		"level":        {request("logging/setLevel", ""), DeniedRule},
		"listen":       {listen(""), DeniedRule},
		"complete":     {complete(`"type":"ref/prompt","name":"a"`), DeniedRule},
		"task":         {request("tasks/get", ""), DeniedRule},
		"unknown":      {request("x/y", ""), DeniedRule},
	}
	probe := Probe()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := decide(t, probe, test.message).Denied; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if probe.None() {
		t.Error("the probe has no rights")
	}
	for i := range listings {
		if probe.Filters([]byte(listings[i].method)) {
			t.Errorf("the probe sees only a part of %s", listings[i].method)
		}
	}
	answer := `{"jsonrpc":"2.0","id":1,"result":{"tools":[{}],"Tools":1}}`
	if got := filterAny(t, probe, answer); got != answer {
		t.Errorf("the probe sees %s", got)
	}
}

// An allowed message costs no allocation.
func TestDecideDoesNotAllocate(t *testing.T) {
	policy, admins := compile(t, office), compile(t, onlyAdmins)
	tests := map[string]struct {
		policy  *Policy
		who     *identity.Identity
		message string
	}{
		"exact":        {policy, ann(), callTool("search")},
		"glob":         {policy, ann(), callTool("x_info")},
		"offer first":  {policy, ann("write"), callTool("write")},
		"prompt":       {policy, ann(), getPrompt("greet")},
		"resource":     {policy, ann(), read("docs://handbook/a")},
		"notification": {policy, ann(), `{"jsonrpc":"2.0","method":"notifications/x"}`},
		"list":         {policy, ann(), request("tools/list", "")},
		"listen":       {policy, ann(), listen(`"resourceSubscriptions":["docs://index","docs://handbook/a"]`)},
		"complete":     {policy, ann(), complete(`"type":"ref/resource","uri":"docs://handbook/{page}"`)},
		"unknown":      {policy, token("corp:root", "mcp:use"), request("x/y", "")},
		"task":         {policy, ann(), request("tasks/get", "")},
		"everything":   {admins, token("corp:root"), callTool("secret")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rights := test.policy.For(test.who)
			message := []byte(test.message)
			e, err := rpc.Scan(message)
			if err != nil {
				t.Fatal(err)
			}
			allocations := testing.AllocsPerRun(100, func() {
				if d := rights.Decide(message, &e); d.Denied != Allowed {
					t.Errorf("denied: %+v", d)
				}
			})
			if allocations != 0 {
				t.Errorf("%v allocations", allocations)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	rights := compile(b, office).For(ann())
	message := []byte(callTool("search"))
	e, err := rpc.Scan(message)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if rights.Decide(message, &e).Denied != Allowed {
			b.Fatal("denied")
		}
	}
}
