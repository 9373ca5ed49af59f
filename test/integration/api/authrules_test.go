package api

import "maps"

const (
	stdioSpec = `image: x, transport: {type: stdio}`
	httpSpec  = `image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000}}`
	anyRules  = `access: {rules: [{subjects: [{kind: Group, name: "system:authenticated"}], tools: ["*"]}]}`
	openRules = `access: {rules: [{subjects: [{kind: Group, name: "system:unauthenticated"}], tools: ["*"]}]}`
)

// auth is a spec with an auth and rules for it.
func auth(content string) string {
	return `{` + stdioSpec + `, auth: {` + content + `}, ` + anyRules + `}`
}

// issuerOf is auth with one issuer.
func issuerOf(content string) string { return auth(`issuers: [{` + content + `}]`) }

// ruleOf is auth with an issuer and one rule.
func ruleOf(content string) string {
	return `{` + stdioSpec + `, auth: {issuers: [{name: corp, url: "https://corp.example"}]}, access: {rules: [{` + content + `}]}}`
}

const anySubjects = `subjects: [{kind: Group, name: "corp:sre"}]`

// allRules are those of this file, too.
func allRules() map[string]rule {
	all := maps.Clone(rules)
	maps.Copy(all, authRules)
	return all
}

// authRules are the rules of spec.auth, spec.access and spec.audit.
var authRules = map[string]rule{
	"auth without an issuer": {
		valid:   auth(`kubernetes: {}`),
		invalid: auth(`mode: Required`),
		want:    `spec.auth: Invalid value: auth needs kubernetes, issuers or both: say whose tokens count`,
	},
	"auth of the server with resources": {
		valid:   `{` + httpSpec + `, auth: {mode: Server}}`,
		invalid: `{` + httpSpec + `, auth: {mode: Server, resources: ["https://echo.example.com/mcp"]}}`,
		want:    `spec.auth: Invalid value: with auth.mode Server, the server checks tokens itself: leave out everything else in auth`,
	},
	"auth of the server with kubernetes": {
		valid:   `{` + httpSpec + `, auth: {mode: Required, kubernetes: {}}, ` + anyRules + `}`,
		invalid: `{` + httpSpec + `, auth: {mode: Server, kubernetes: {}}}`,
		want:    `spec.auth: Invalid value: with auth.mode Server, the server checks tokens itself: leave out everything else in auth`,
	},
	"auth of a stdio server": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 3000}}, auth: {mode: Server}}`,
		invalid: `{` + stdioSpec + `, auth: {mode: Server}}`,
		want:    `spec.auth.mode: Forbidden: auth.mode Server is for transports streamable-http and sse only: a stdio server sees no tokens`,
	},
	"scopes without issuers": {
		valid:   auth(`issuers: [{name: corp, url: "https://corp.example"}], scopes: ["mcp:use"]`),
		invalid: auth(`kubernetes: {}, scopes: ["mcp:use"]`),
		want:    `spec.auth.scopes: Invalid value: auth.scopes and auth.scopeImplies are for tokens of issuers: ServiceAccount tokens have no scopes`,
	},
	"implied scopes without issuers": {
		valid:   auth(`issuers: [{name: corp, url: "https://corp.example"}], scopeImplies: [{scope: a, implies: [b]}]`),
		invalid: auth(`kubernetes: {}, scopeImplies: [{scope: a, implies: [b]}]`),
		want:    `spec.auth.scopes: Invalid value: auth.scopes and auth.scopeImplies are for tokens of issuers: ServiceAccount tokens have no scopes`,
	},
	"resource": {
		valid:   auth(`kubernetes: {}, resources: ["https://echo.example.com/mcp", "http://echo.team.svc:8080"]`),
		invalid: auth(`kubernetes: {}, resources: ["https://echo.example.com/mcp/"]`),
		want:    `spec.auth.resources[0]: Invalid value: "https://echo.example.com/mcp/": a resource must be a URL like https://echo.example.com/mcp, without a query, a fragment or a slash at its end`,
	},
	"resource with a query": {
		valid:   auth(`kubernetes: {}, resources: ["https://echo.example.com"]`),
		invalid: auth(`kubernetes: {}, resources: ["https://echo.example.com/mcp?tenant=1"]`),
		want:    `spec.auth.resources[0]: Invalid value: "https://echo.example.com/mcp?tenant=1": a resource must be a URL like https://echo.example.com/mcp, without a query, a fragment or a slash at its end`,
	},
	"lifetime of tokens of the cluster": {
		valid:   auth(`kubernetes: {maxLifetime: 1m}`),
		invalid: auth(`kubernetes: {maxLifetime: 59s}`),
		want:    `spec.auth.kubernetes.maxLifetime: Invalid value: "59s": kubernetes.maxLifetime must be a duration from 1m to 8760h, such as 30m or 2h`,
	},
	"lifetime of tokens of an issuer": {
		valid:   issuerOf(`name: corp, url: "https://corp.example", maxLifetime: 8760h`),
		invalid: issuerOf(`name: corp, url: "https://corp.example", maxLifetime: 8761h`),
		want:    `spec.auth.issuers[0].maxLifetime: Invalid value: "8761h": issuers.maxLifetime must be a duration from 1m to 8760h, such as 30m or 24h`,
	},
	"issuer that is called as the cluster's": {
		valid:   issuerOf(`name: kubernetes-2, url: "https://corp.example"`),
		invalid: issuerOf(`name: kubernetes, url: "https://corp.example"`),
		want:    `spec.auth.issuers[0].name: Invalid value: an issuer must not have the name system or kubernetes: they are reserved`,
	},
	"issuer that is called as Kubernetes' own users": {
		valid:   issuerOf(`name: systems, url: "https://corp.example"`),
		invalid: issuerOf(`name: system, url: "https://corp.example"`),
		want:    `spec.auth.issuers[0].name: Invalid value: an issuer must not have the name system or kubernetes: they are reserved`,
	},
	"issuers with the same url": {
		valid:   auth(`issuers: [{name: corp, url: "https://corp.example/a"}, {name: other, url: "https://corp.example/b"}]`),
		invalid: auth(`issuers: [{name: corp, url: "https://corp.example"}, {name: third, url: "https://c.example"}, {name: other, url: "https://corp.example"}]`),
		want:    `spec.auth.issuers: Invalid value: each issuer must have another url: a token says by the url alone whose it is`,
	},
	"issuer without TLS": {
		valid:   issuerOf(`name: corp, url: "https://corp.example:8443/realms/main/"`),
		invalid: issuerOf(`name: corp, url: "http://corp.example"`),
		want:    `spec.auth.issuers[0].url: Invalid value: "http://corp.example": an issuer must be a URL like https://login.example.com/realms/main, without a query or a fragment`,
	},
	"issuer with credentials": {
		valid:   issuerOf(`name: corp, url: "https://corp.example/@main"`),
		invalid: issuerOf(`name: corp, url: "https://me:secret@corp.example"`),
		want:    `spec.auth.issuers[0].url: Invalid value: "https://me:secret@corp.example": an issuer must be a URL like https://login.example.com/realms/main, without a query or a fragment`,
	},
	"auth without rules": {
		valid:   `{` + stdioSpec + `, auth: {kubernetes: {}}, ` + anyRules + `}`,
		invalid: `{` + stdioSpec + `, auth: {kubernetes: {}}}`,
		want:    `spec.access: Required value: auth needs access.rules: add a rule that authorizes callers`,
	},
	"auth with hidden tools only": {
		valid:   `{` + stdioSpec + `, access: {hidden: ["admin_*"]}}`,
		invalid: `{` + stdioSpec + `, auth: {kubernetes: {}}, access: {hidden: ["admin_*"]}}`,
		want:    `spec.access: Required value: auth needs access.rules: add a rule that authorizes callers`,
	},
	"rules of a server that checks tokens itself": {
		valid:   `{` + httpSpec + `, auth: {mode: Server}, access: {hidden: [a]}}`,
		invalid: `{` + httpSpec + `, auth: {mode: Server}, ` + anyRules + `}`,
		want:    `spec.access: Forbidden: access.rules and access.blocked must not be set with auth.mode Server: the adapter does not know the caller`,
	},
	"blocked callers without auth": {
		valid:   `{` + stdioSpec + `, auth: {kubernetes: {}}, access: {rules: [{` + anySubjects + `, tools: [a]}], blocked: [{kind: User, name: "corp:mallory"}]}}`,
		invalid: `{` + stdioSpec + `, access: {blocked: [{kind: User, name: "corp:mallory"}]}}`,
		want:    `spec.access.blocked: Forbidden: access.blocked needs auth: without it the adapter does not know the caller`,
	},
	"rules without auth": {
		valid:   `{` + stdioSpec + `, ` + openRules + `}`,
		invalid: `{` + stdioSpec + `, ` + anyRules + `}`,
		want:    `spec.access.rules: Invalid value: without auth, the subjects of access.rules can only be the Group system:unauthenticated; with auth, they cannot: it has no callers then`,
	},
	"rules with auth for callers without a token": {
		valid:   `{` + stdioSpec + `, auth: {kubernetes: {}}, ` + anyRules + `}`,
		invalid: `{` + stdioSpec + `, auth: {kubernetes: {}}, ` + openRules + `}`,
		want:    `spec.access.rules: Invalid value: without auth, the subjects of access.rules can only be the Group system:unauthenticated; with auth, they cannot: it has no callers then`,
	},
	"scopes in rules without issuers": {
		valid:   ruleOf(anySubjects + `, tools: [a], scopes: ["issues:write"]`),
		invalid: `{` + stdioSpec + `, auth: {kubernetes: {}}, access: {rules: [{` + anySubjects + `, tools: [a], scopes: ["issues:write"]}]}}`,
		want:    `spec.access.rules: Invalid value: scopes in access.rules need auth.issuers: other tokens have no scopes`,
	},
	"rule about nothing": {
		valid:   ruleOf(anySubjects + `, prompts: [a]`),
		invalid: ruleOf(anySubjects),
		want:    `spec.access.rules[0]: Invalid value: a rule needs tools, prompts or resources: list what its subjects can use`,
	},
	"ServiceAccount without a namespace": {
		valid:   ruleOf(`subjects: [{kind: ServiceAccount, namespace: agents, name: triage}], tools: [a]`),
		invalid: ruleOf(`subjects: [{kind: ServiceAccount, name: triage}], tools: [a]`),
		want:    `spec.access.rules[0].subjects[0].namespace: Invalid value: a subject needs a namespace if it is a ServiceAccount, and has none otherwise`,
	},
	"user with a namespace": {
		valid:   ruleOf(`subjects: [{kind: User, name: "corp:alice"}], tools: [a]`),
		invalid: ruleOf(`subjects: [{kind: User, namespace: agents, name: "corp:alice"}], tools: [a]`),
		want:    `spec.access.rules[0].subjects[0].namespace: Invalid value: a subject needs a namespace if it is a ServiceAccount, and has none otherwise`,
	},

	// What the schema itself catches.
	"pattern with a star in the middle": {
		valid:   ruleOf(anySubjects + `, tools: ["*_issue", "list_*", "*issue*", "*"]`),
		invalid: ruleOf(anySubjects + `, tools: ["list_*_issue"]`),
		want:    `spec.access.rules[0].tools[0]: Invalid value: "list_*_issue": spec.access.rules[0].tools[0] in body should match '^\*?[^*]*\*?$'`,
	},
	"resources with a star": {
		valid:   ruleOf(anySubjects + `, resources: ["docs://handbook/", "*"]`),
		invalid: ruleOf(anySubjects + `, resources: ["docs://*"]`),
		want:    `spec.access.rules[0].resources[0]: Invalid value: "docs://*": spec.access.rules[0].resources[0] in body should match '^(\*|[^*]+)$'`,
	},
	"unknown level of audit": {
		valid:   `{` + stdioSpec + `, audit: {level: Metadata, whenFull: Refuse}}`,
		invalid: `{` + stdioSpec + `, audit: {level: Request}}`,
		want:    `spec.audit.level: Unsupported value: "Request": supported values: "None", "Metadata"`,
	},
}
