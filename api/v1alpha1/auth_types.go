package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Auth says which tokens callers need.
//
// +kubebuilder:validation:XValidation:rule="self.mode == 'Server' || has(self.kubernetes) || has(self.issuers)",message="auth needs kubernetes, issuers or both: say whose tokens count"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Server' || !has(self.resources) && !has(self.kubernetes) && !has(self.issuers) && !has(self.scopes) && !has(self.scopeImplies)",message="with auth.mode Server, the server checks tokens itself: leave out everything else in auth"
// +kubebuilder:validation:XValidation:rule="has(self.issuers) || !has(self.scopes) && !has(self.scopeImplies)",message="auth.scopes and auth.scopeImplies are for tokens of issuers: ServiceAccount tokens have no scopes",fieldPath=".scopes"
type Auth struct {
	// mode says what checks the tokens. Required (default): the adapter refuses every request
	// without a valid token with status 401, and forwards no token to the server. Server: the server
	// checks tokens itself, and the adapter forwards them. Server is for the transports
	// streamable-http and sse only.
	// +optional
	// +kubebuilder:default=Required
	Mode AuthMode `json:"mode,omitempty"`

	// resources are the URLs at which clients know this server, such as
	// https://echo.example.com/mcp. Tokens must be issued for one of them, unless an issuer has
	// audiences of its own. Defaults to the URL in status.address.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:MinItems=1
	Resources []ResourceURL `json:"resources,omitempty"`

	// kubernetes accepts ServiceAccount tokens of this cluster.
	// +optional
	Kubernetes *KubernetesAuth `json:"kubernetes,omitempty"`

	// issuers are authorization servers whose JWT access tokens count.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.url == b.url))",message="each issuer must have another url: a token says by the url alone whose it is"
	Issuers []Issuer `json:"issuers,omitempty"`

	// scopes are what every token of an issuer needs. Clients learn them from the metadata of
	// the server, and ask for them when they log in.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Scopes []Scope `json:"scopes,omitempty"`

	// scopeImplies are scopes that include others: a token with the broader scope need not have
	// the narrower ones.
	// +optional
	// +listType=map
	// +listMapKey=scope
	// +kubebuilder:validation:MaxItems=16
	ScopeImplies []ScopeImplication `json:"scopeImplies,omitempty"`
}

// AuthMode says what checks tokens.
//
// +kubebuilder:validation:Enum=Required;Server
type AuthMode string

const (
	// AuthModeRequired has the adapter check a token with every request.
	AuthModeRequired AuthMode = "Required"
	// AuthModeServer has the server check tokens itself.
	AuthModeServer AuthMode = "Server"
)

// ResourceURL is the URL of a server as clients know it.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@[:space:]\"]+(/[^?#[:space:]\"]*)?$') && !self.endsWith('/')",message="a resource must be a URL like https://echo.example.com/mcp, without a query, a fragment or a slash at its end"
type ResourceURL string

// Audience is an accepted value of the claim aud.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
type Audience string

// Scope is an OAuth scope.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[!#-\[\]-~]+$`
type Scope string

// ScopeImplication says which scopes a broader scope includes.
type ScopeImplication struct {
	// scope is the broader scope.
	// +required
	Scope Scope `json:"scope,omitempty"`

	// implies are the scopes that it includes.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Implies []Scope `json:"implies,omitempty"`
}

// KubernetesAuth accepts ServiceAccount tokens of this cluster.
type KubernetesAuth struct {
	// audiences are what the token must be issued for, one of them. Defaults to auth.resources.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Audiences []Audience `json:"audiences,omitempty"`

	// maxLifetime refuses tokens that are valid for longer, because nothing revokes a token
	// before it expires. Defaults to 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="kubernetes.maxLifetime must be a duration from 1m to 8760h, such as 30m or 2h"
	MaxLifetime *metav1.Duration `json:"maxLifetime,omitempty"`
}

// Issuer is an authorization server whose JWT access tokens count.
//
// +kubebuilder:validation:XValidation:rule="!(self.name in ['system', 'kubernetes'])",message="an issuer must not have the name system or kubernetes: they are reserved",fieldPath=".name"
type Issuer struct {
	// name is the prefix of users, groups and clients of this issuer in rules and audits, as in
	// corp:alice.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// url is the issuer, exactly as its tokens have it in the claim iss. The manager fetches the
	// issuer's keys, so it must be able to reach this URL.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://[^/?#@[:space:]\"]+(/[^?#[:space:]\"]*)?$')",message="an issuer must be a URL like https://login.example.com/realms/main, without a query or a fragment"
	URL string `json:"url,omitempty"`

	// audiences are what a token must be issued for, one of them. Defaults to auth.resources. Set
	// it for an authorization server that ignores the parameter resource of clients.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Audiences []Audience `json:"audiences,omitempty"`

	// caBundle names a ConfigMap of this namespace, and its key, with the certificates of the
	// authority that has signed the issuer's certificate, in PEM. Defaults to the certificates of
	// the manager's image.
	// +optional
	CABundle *ConfigMapKey `json:"caBundle,omitempty"`

	// claims say where tokens name the caller.
	// +optional
	Claims IssuerClaims `json:"claims,omitzero"`

	// maxLifetime refuses tokens that are valid for longer, because nothing revokes a token
	// before it expires. Defaults to 24h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="issuers.maxLifetime must be a duration from 1m to 8760h, such as 30m or 24h"
	MaxLifetime *metav1.Duration `json:"maxLifetime,omitempty"`

	// advertise lists the issuer in the metadata of the server, so that clients log in there.
	// Defaults to true.
	// +optional
	Advertise *bool `json:"advertise,omitempty"`
}

// IssuerClaims are paths of claims, with a dot between members, as in realm_access.roles.
type IssuerClaims struct {
	// user is the claim that names the user. Defaults to sub.
	// +optional
	User ClaimPath `json:"user,omitempty"`

	// groups is the claim with the user's groups: a list of strings, or one string. Defaults to groups.
	// +optional
	Groups ClaimPath `json:"groups,omitempty"`

	// client is the claim that names the OAuth client. Defaults to azp, or client_id if there is
	// no azp.
	// +optional
	Client ClaimPath `json:"client,omitempty"`
}

// ClaimPath is the path of a claim.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
type ClaimPath string

// ConfigMapKey selects a key of a ConfigMap.
type ConfigMapKey struct {
	// name is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// key is the key in the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Access authorizes callers: its rules list the tools, prompts and resources that each caller can use.
type Access struct {
	// rules allow callers to use tools, prompts and resources. A call is allowed if any rule
	// allows it. Without rules and without auth, everything is allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []AccessRule `json:"rules,omitempty"`

	// blocked lists callers that can use nothing, even if a rule allows it. A change takes effect
	// within 10 seconds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Blocked []Subject `json:"blocked,omitempty"`

	// hidden are tools that no client sees or calls: names, or names with * at one end or at
	// both, as in admin_*. It also works without auth. The status still lists these tools.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Hidden []NamePattern `json:"hidden,omitempty"`
}

// AccessRule allows its subjects to use the tools, prompts and resources that it lists.
//
// +kubebuilder:validation:XValidation:rule="has(self.tools) || has(self.prompts) || has(self.resources)",message="a rule needs tools, prompts or resources: list what its subjects can use"
type AccessRule struct {
	// subjects are the callers that the rule is for.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Subjects []Subject `json:"subjects,omitempty"`

	// tools are the tools that the subjects can call: names, or names with * at one end or at
	// both, as in list_*. A server can add tools that a pattern matches, so prefer names.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Tools []NamePattern `json:"tools,omitempty"`

	// prompts are the prompts that the subjects can get: names, or names with * at one end or at
	// both.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Prompts []NamePattern `json:"prompts,omitempty"`

	// resources are the resources that the subjects can read: URIs, or prefixes of URIs that end
	// with a slash, as in docs://handbook/, or * for all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Resources []URIPattern `json:"resources,omitempty"`

	// scopes are what the caller's token needs, besides. If nothing but these is missing, the
	// adapter tells the client which ones, so that it can ask the user.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Scopes []Scope `json:"scopes,omitempty"`
}

// NamePattern is a name, or a name with * at one end or at both.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:Pattern=`^\*?[^*]*\*?$`
type NamePattern string

// URIPattern is a URI, a prefix of URIs that ends with a slash, or *.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^(\*|[^*]+)$`
type URIPattern string

// Subject is a caller, or a group of callers.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == has(self.namespace)",message="a subject needs a namespace if it is a ServiceAccount, and has none otherwise",fieldPath=".namespace"
type Subject struct {
	// kind says what the subject is. User: a user of an issuer, as in corp:alice. Group: a group of an
	// issuer, as in corp:sre, or system:authenticated for every caller with a token,
	// system:unauthenticated for callers of a server without auth, system:serviceaccounts or
	// system:serviceaccounts:NAMESPACE. Client: an OAuth client, as in corp:triage-bot.
	// ServiceAccount: one of this cluster.
	// +required
	Kind SubjectKind `json:"kind,omitempty"`

	// name is the name of the subject, with the name of its issuer in front.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`

	// namespace is the namespace of a ServiceAccount.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// SubjectKind says what a subject is.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount;Client
type SubjectKind string

const (
	// SubjectKindUser is a user of an issuer.
	SubjectKindUser SubjectKind = "User"
	// SubjectKindGroup is a group.
	SubjectKindGroup SubjectKind = "Group"
	// SubjectKindServiceAccount is a ServiceAccount of the cluster.
	SubjectKindServiceAccount SubjectKind = "ServiceAccount"
	// SubjectKindClient is an OAuth client.
	SubjectKindClient SubjectKind = "Client"
)

// Audit says what the adapters record.
type Audit struct {
	// level is how much the adapters record, one JSON line for each decision on their standard
	// output. None (default): nothing. Metadata: who called what and what came of it; never
	// arguments, results or tokens.
	// +optional
	Level AuditLevel `json:"level,omitempty"`

	// whenFull says what an adapter does while it cannot write its lines as fast as requests come.
	// Drop (default): it serves the request and counts the line that it lost. Refuse: it answers
	// the request with status 503.
	// +optional
	WhenFull AuditWhenFull `json:"whenFull,omitempty"`
}

// AuditLevel is how much the adapters record.
//
// +kubebuilder:validation:Enum=None;Metadata
type AuditLevel string

const (
	// AuditLevelNone records nothing.
	AuditLevelNone AuditLevel = "None"
	// AuditLevelMetadata records who called what, and what came of it.
	AuditLevelMetadata AuditLevel = "Metadata"
)

// AuditWhenFull says what an adapter does while it cannot record.
//
// +kubebuilder:validation:Enum=Drop;Refuse
type AuditWhenFull string

const (
	// AuditWhenFullDrop serves the request.
	AuditWhenFullDrop AuditWhenFull = "Drop"
	// AuditWhenFullRefuse refuses the request.
	AuditWhenFullRefuse AuditWhenFull = "Refuse"
)
