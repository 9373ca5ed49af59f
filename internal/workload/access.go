package workload

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// How long tokens may be valid when the spec does not say, as its comments promise.
const (
	DefaultClusterLifetime = time.Hour
	DefaultIssuerLifetime  = 24 * time.Hour
)

// IssuerKeys is what the manager knows of an issuer.
type IssuerKeys struct {
	// Issuer is the claim iss of its tokens. Only the cluster's is not in the spec.
	Issuer string
	Keys   []json.RawMessage
}

// HasAccess says whether the spec has anything that adapters are to enforce.
func HasAccess(server *mcpv1alpha1.MCPServer) bool {
	return server.Spec.Auth != nil || server.Spec.Access != nil || server.Spec.Audit != nil
}

// Access is what the server's adapters enforce, without a generation. Keys are by the names of the issuers.
// An issuer that was never reached has none, and none of its tokens count. What is in here has no place in
// the pod template, nor in its inputs: see withoutSettings.
func Access(server *mcpv1alpha1.MCPServer, clusterDomain string, keys map[string]IssuerKeys) adapterapi.Access {
	access := adapterapi.Access{
		Version: adapterapi.AccessVersion, Server: adapterapi.AccessServer{Namespace: server.Namespace, Name: server.Name},
		Mode: adapterapi.AccessNone, Audit: auditOf(server.Spec.Audit),
	}
	if auth := server.Spec.Auth; auth != nil {
		authorize(&access, server, auth, clusterDomain, keys)
	}
	if given := server.Spec.Access; given != nil {
		for i := range given.Rules {
			access.Rules = append(access.Rules, accessRule(&given.Rules[i]))
		}
		access.Blocked = accessSubjects(given.Blocked)
		access.Hidden = stringsOf(given.Hidden)
	}
	return access
}

// everyClient is the group of all clients of a server that takes no token.
var everyClient = adapterapi.AccessSubject{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupUnauthenticated}

// ClosedAccess is what the adapters of a server enforce that must have spec.auth, and does not, or whose
// spec.auth they cannot take: they refuse every client. No client has a token that counts, so all are in the
// group that is blocked. The manager is no client, and still sees how the server is.
//
// Adapters can always take it. A newer CRD may have words for audits that this manager does not know, and they
// must not keep a server open.
func ClosedAccess(server *mcpv1alpha1.MCPServer) adapterapi.Access {
	audit := auditOf(server.Spec.Audit)
	if audit.Level != adapterapi.AuditNone {
		audit.Level = adapterapi.AuditMetadata
	}
	if audit.WhenFull != adapterapi.AuditRefuse {
		audit.WhenFull = adapterapi.AuditDrop
	}
	return adapterapi.Access{
		Version: adapterapi.AccessVersion, Server: adapterapi.AccessServer{Namespace: server.Namespace, Name: server.Name},
		Mode: adapterapi.AccessNone, Audit: audit, Blocked: []adapterapi.AccessSubject{everyClient},
	}
}

// IsClosed says whether adapters refuse every client by a document.
func IsClosed(access *adapterapi.Access) bool {
	return access.Mode == adapterapi.AccessNone && slices.Contains(access.Blocked, everyClient)
}

// authorize adds whose tokens count, and for what.
func authorize(access *adapterapi.Access, server *mcpv1alpha1.MCPServer, auth *mcpv1alpha1.Auth, clusterDomain string, keys map[string]IssuerKeys) {
	if auth.Mode == mcpv1alpha1.AuthModeServer {
		access.Mode = adapterapi.AccessOfServer
		return
	}
	access.Mode = adapterapi.AccessRequired
	if access.Resources = stringsOf(auth.Resources); len(access.Resources) == 0 {
		access.Resources = []string{URL(server)}
	}
	access.Scopes = stringsOf(auth.Scopes)
	for i := range auth.ScopeImplies {
		if access.ScopeImplies == nil {
			access.ScopeImplies = map[string][]string{}
		}
		access.ScopeImplies[string(auth.ScopeImplies[i].Scope)] = stringsOf(auth.ScopeImplies[i].Implies)
	}
	if auth.Kubernetes != nil {
		known := keys[adapterapi.KubernetesIssuer]
		access.Issuers = append(access.Issuers, adapterapi.AccessIssuer{
			Name: adapterapi.KubernetesIssuer,
			// Adapters take no issuer without a name. Until the cluster's is known, there are no keys for any.
			Issuer:             cmp.Or(known.Issuer, "https://kubernetes.default.svc."+cmp.Or(clusterDomain, defaultClusterDomain)),
			Audiences:          audiences(auth.Kubernetes.Audiences, access.Resources),
			MaxLifetimeSeconds: seconds(auth.Kubernetes.MaxLifetime, DefaultClusterLifetime),
			Claims:             adapterapi.AccessClaims{User: "sub"},
			Keys:               known.Keys,
		})
	}
	for i := range auth.Issuers {
		issuer := &auth.Issuers[i]
		access.Issuers = append(access.Issuers, adapterapi.AccessIssuer{
			Name: issuer.Name, Issuer: issuer.URL,
			Audiences:          audiences(issuer.Audiences, access.Resources),
			MaxLifetimeSeconds: seconds(issuer.MaxLifetime, DefaultIssuerLifetime),
			Claims: adapterapi.AccessClaims{
				User: cmp.Or(string(issuer.Claims.User), "sub"), Groups: cmp.Or(string(issuer.Claims.Groups), "groups"), Client: string(issuer.Claims.Client),
			},
			Keys: keys[issuer.Name].Keys,
		})
		if issuer.Advertise == nil || *issuer.Advertise {
			access.AuthorizationServers = append(access.AuthorizationServers, issuer.URL)
		}
	}
}

// audiences are those of an issuer, or else the URLs of the server.
func audiences(given []mcpv1alpha1.Audience, resources []string) []string {
	if len(given) == 0 {
		return append([]string(nil), resources...)
	}
	return stringsOf(given)
}

func seconds(given *metav1.Duration, otherwise time.Duration) int64 {
	if given != nil {
		otherwise = given.Duration
	}
	return int64(otherwise / time.Second)
}

func accessRule(rule *mcpv1alpha1.AccessRule) adapterapi.AccessRule {
	return adapterapi.AccessRule{
		Subjects: accessSubjects(rule.Subjects),
		Tools:    stringsOf(rule.Tools), Prompts: stringsOf(rule.Prompts), Resources: stringsOf(rule.Resources), Scopes: stringsOf(rule.Scopes),
	}
}

func accessSubjects(given []mcpv1alpha1.Subject) []adapterapi.AccessSubject {
	var subjects []adapterapi.AccessSubject
	for _, subject := range given {
		if subject.Kind == mcpv1alpha1.SubjectKindServiceAccount {
			subjects = append(subjects, adapterapi.AccessSubject{
				Kind: adapterapi.SubjectUser, Name: "system:serviceaccount:" + subject.Namespace + ":" + subject.Name,
			})
			continue
		}
		subjects = append(subjects, adapterapi.AccessSubject{Kind: adapterapi.AccessSubjectKind(subject.Kind), Name: subject.Name})
	}
	return subjects
}

func auditOf(given *mcpv1alpha1.Audit) adapterapi.AccessAudit {
	audit := adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop}
	if given != nil {
		audit.Level = cmp.Or(adapterapi.AuditLevel(given.Level), audit.Level)
		audit.WhenFull = cmp.Or(adapterapi.AuditWhenFull(given.WhenFull), audit.WhenFull)
	}
	return audit
}

// stringsOf are the texts of a list.
func stringsOf[T ~string](given []T) []string {
	var texts []string
	for _, text := range given {
		texts = append(texts, string(text))
	}
	return texts
}
