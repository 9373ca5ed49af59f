//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/test/authserver"
	"github.com/slipway-mcp/slipway/test/dex"
)

const (
	// adapterPatience is how long the adapter takes a token for one whose key may become known.
	adapterPatience = 30 * time.Second

	dexClient, dexSecret = "app", "hush"
	ownClient, ownSecret = "bot", "hush-hush"
)

var (
	alice = dex.User{Email: "alice@example.com", Password: "wonderland"}
	bob   = dex.User{Email: "bob@example.com", Password: "builder"}
)

// issuersStory is a server with two issuers in its namespace: dex, which people use, and an authorization
// server of our own, which knows scopes and resources.
type issuersStory struct {
	server   *mcpv1alpha1.MCPServer
	dex, own *identityProvider
}

func beginIssuersStory(ctx context.Context) *issuersStory {
	GinkgoHelper()
	By("running two issuers")
	namespace := newNamespace(ctx)
	server := stdioServer(ctx, namespace)
	server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: time.Second} // so that no spec waits for the sessions of another
	address := "http://" + server.Name + "." + namespace + ".svc/mcp"
	s := &issuersStory{
		server: server,
		dex: runProvider(ctx, namespace, "dex", "/idp", dex.Config{
			Clients: []dex.Client{
				{ID: dexClient, Name: "App", Secret: dexSecret},
				{ID: address, Name: "Server", Secret: "unused", TrustedPeers: []string{dexClient}},
			},
			Users: []dex.User{alice, bob},
		}),
		own: runProvider(ctx, namespace, "authserver", "/authserver", map[string]any{"clients": []authserver.Client{{ID: ownClient, Secret: ownSecret}}}),
	}
	s.dex.awaitServing(ctx)
	s.own.awaitServing(ctx)
	bot := []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindClient, Name: "own:" + ownClient}}
	server.Spec.Auth = &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{
		s.dex.as("dex", mcpv1alpha1.IssuerClaims{User: "email"}), s.own.as("own", mcpv1alpha1.IssuerClaims{}),
	}}
	server.Spec.Access = &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{
		{Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindUser, Name: "dex:" + alice.Email}}, Tools: []mcpv1alpha1.NamePattern{"echo"}},
		{Subjects: bot, Tools: []mcpv1alpha1.NamePattern{"echo"}},
		{Subjects: bot, Tools: []mcpv1alpha1.NamePattern{"pid"}, Scopes: []mcpv1alpha1.Scope{"pid:read"}},
	}}
	By("running a server that knows them")
	Expect(cluster.Create(ctx, server)).To(Succeed())
	awaitStatus(ctx, server, patience, HaveField("Status.Access", And(Not(BeNil()), HaveField("Issuers", And(HaveLen(2), HaveEach(HaveField("Keys", BeNumerically(">=", 1))))))))
	awaitReady(ctx, server)
	Expect(server.Status.Address.URL).To(Equal(address))
	return s
}

// ofUser is a visitor with a new token that dex issues to a user.
func (s *issuersStory) ofUser(ctx context.Context, user dex.User) *visitor {
	GinkgoHelper()
	return visitorOf(s.server, s.dex.token(ctx, url.Values{
		"grant_type": {"password"}, "client_id": {dexClient}, "client_secret": {dexSecret}, "username": {user.Email}, "password": {user.Password},
		"scope": {"openid email " + dex.AudienceScope(s.server.Status.Address.URL)},
	}))
}

// ofBot is a visitor with a new token that our own authorization server issues to a client.
func (s *issuersStory) ofBot(ctx context.Context, scope string) *visitor {
	GinkgoHelper()
	return visitorOf(s.server, s.own.token(ctx, url.Values{
		"grant_type": {"client_credentials"}, "client_id": {ownClient}, "client_secret": {ownSecret},
		"resource": {s.server.Status.Address.URL}, "scope": {scope},
	}))
}

var _ = Describe("Issuers", Ordered, Label("sessions"), func() {
	var story *issuersStory
	BeforeAll(func(ctx SpecContext) { story = beginIssuersStory(ctx) })
	BeforeEach(func() { ownNamespaces = []string{story.server.Namespace} })

	It("have their users served, and no other users", func(ctx SpecContext) {
		server := story.server
		Expect(server.Status.Access.Issuers).To(ConsistOf(
			And(HaveField("Name", "dex"), HaveField("Keys", BeNumerically(">=", 1))),
			And(HaveField("Name", "own"), HaveField("Keys", BeNumerically(">=", 1)))))

		By("telling a client without a token where to log in")
		anonymous := visitorOf(server, "")
		Expect(anonymous.send(ctx, accessInitialize)).To(Equal(http.StatusUnauthorized))
		challenge := regexp.MustCompile(`^Bearer resource_metadata="([^"]+)"`).FindStringSubmatch(anonymous.header.Get("WWW-Authenticate"))
		Expect(challenge).To(HaveLen(2), anonymous.header.Get("WWW-Authenticate"))
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, challenge[1], nil)
		Expect(err).NotTo(HaveOccurred())
		metadata, status, err := get(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(http.StatusOK))
		var said map[string]any
		Expect(json.Unmarshal([]byte(metadata), &said)).To(Succeed(), metadata)
		Expect(said).To(And(HaveKeyWithValue("resource", server.Status.Address.URL), HaveKeyWithValue("authorization_servers", ConsistOf(story.dex.issuer, story.own.issuer))))

		By("serving the user of dex that a rule names")
		user := story.ofUser(ctx, alice)
		Expect(user.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		Expect(user.send(ctx, accessEcho)).To(Equal(http.StatusOK))
		Expect(user.send(ctx, accessPID)).To(Equal(http.StatusForbidden))
		Expect(story.ofUser(ctx, bob).send(ctx, accessInitialize)).To(Equal(http.StatusForbidden))

		By("asking a client for a scope, of which dex knows nothing")
		bot := story.ofBot(ctx, "")
		Expect(bot.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		Expect(bot.send(ctx, accessPID)).To(Equal(http.StatusForbidden))
		Expect(bot.header.Get("WWW-Authenticate")).To(And(ContainSubstring(`error="insufficient_scope"`), ContainSubstring(`scope="pid:read"`)))
		bot.token = story.ofBot(ctx, "pid:read").token
		Expect(bot.send(ctx, accessPID)).To(Equal(http.StatusOK), "in the same session, with more scope")
	})

	It("have their users served while the API server is away", Label("disruptive"), func(ctx SpecContext) {
		user, bot := story.ofUser(ctx, alice), story.ofBot(ctx, "")
		Expect(user.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		before := identities(ctx, story.server)
		cluster.withoutAPIServer(ctx, func() {
			Expect(user.send(ctx, accessEcho)).To(Equal(http.StatusOK))
			Expect(bot.send(ctx, accessInitialize)).To(Equal(http.StatusOK), "a token that the adapter sees for the first time")
			story.expectEnforced(ctx)
		})
		Expect(identities(ctx, story.server)).To(Equal(before))
	})

	It("may be away, and come back with another key", func(ctx SpecContext) {
		known, fresh, other := story.ofUser(ctx, alice), story.ofUser(ctx, alice), story.ofUser(ctx, bob)
		Expect(known.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		story.dex.stop(ctx)
		Expect(known.send(ctx, accessEcho)).To(Equal(http.StatusOK))
		Expect(fresh.send(ctx, accessInitialize)).To(Equal(http.StatusOK), "a token that the adapter sees for the first time")
		Expect(fresh.send(ctx, accessEcho)).To(Equal(http.StatusOK))
		Expect(other.send(ctx, accessInitialize)).To(Equal(http.StatusForbidden))

		By("taking the new key soon, and the old one no more")
		story.dex.start(ctx)
		newcomer := story.ofUser(ctx, alice)
		story.expectNewKey(ctx, newcomer)
		for _, withdrawn := range []*visitor{known, fresh} {
			// The key could as well be one that the issuer has just begun to use: it takes half a minute to know better.
			Expect(withdrawn.send(ctx, accessEcho)).To(Equal(http.StatusServiceUnavailable))
		}
		known.token = newcomer.token
		Expect(known.send(ctx, accessEcho)).To(Equal(http.StatusOK), "the session goes on with a token of the new key")
	})

	It("may sign with a new key beside the old one", func(ctx SpecContext) {
		bot := story.ofBot(ctx, "")
		Expect(bot.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		_, err := story.own.ask(ctx, http.MethodPost, "/rotate", nil)
		Expect(err).NotTo(HaveOccurred())
		story.expectNewKey(ctx, story.ofBot(ctx, ""))
		Expect(bot.send(ctx, accessEcho)).To(Equal(http.StatusOK), "the issuer still publishes the key of this token")
	})

	It("have their users served while the manager is away, also by a pod that starts then", Label("disruptive"), func(ctx SpecContext) {
		server := story.server
		user, bot := story.ofUser(ctx, alice), story.ofBot(ctx, "")
		Expect(user.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, operatorNamespace, "scale", "deployment/"+managerDeployment, "--replicas=1")
			awaitManagers(ctx, 1)
		})
		kubectl(ctx, operatorNamespace, "scale", "deployment/"+managerDeployment, "--replicas=0")
		Eventually(managers).WithContext(ctx).Should(BeEmpty())
		Expect(user.send(ctx, accessEcho)).To(Equal(http.StatusOK))
		Expect(bot.send(ctx, accessInitialize)).To(Equal(http.StatusOK), "a token that the adapter sees for the first time")
		story.expectEnforced(ctx)

		By("replacing the pod")
		old := onlyPod(ctx, server)
		Expect(cluster.Delete(ctx, old)).To(Succeed())
		Eventually(func(g Gomega) {
			list := pods(ctx, server)
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].UID).NotTo(Equal(old.UID))
			g.Expect(list[0].Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func() []corev1.Pod { return allPods(ctx, server) }).WithContext(ctx).Should(HaveLen(1), "the old pod may still be the one that serves")
		Expect(managers(ctx)).To(BeEmpty(), "a manager is there: nothing is proven")
		story.expectEnforced(ctx)
		before := identities(ctx, server)

		By("bringing the manager back when an issuer is away, which changes nothing")
		bot = story.ofBot(ctx, "")
		story.own.stop(ctx)
		kubectl(ctx, operatorNamespace, "scale", "deployment/"+managerDeployment, "--replicas=1")
		awaitManagers(ctx, 1)
		awaitStatus(ctx, server, patience, WithTransform(instanceNames, ConsistOf(podNames(pods(ctx, server)))))
		awaitCondition(ctx, server, mcpv1alpha1.ConditionAccessEnforced, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced)
		story.own.awaitMissed(ctx)
		Expect(bot.send(ctx, accessInitialize)).To(Equal(http.StatusOK), "the key is in the last document")
		// For as long as a document without the key would take to come.
		Consistently(func() int { return bot.send(ctx, accessEcho) }).WithContext(ctx).WithTimeout(promise.Settings).Should(Equal(http.StatusOK))
		Expect(story.ofUser(ctx, alice).send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		Expect(identities(ctx, server)).To(Equal(before))
	})
})

// expectEnforced expects that tokens which are new to the adapter are judged as ever.
func (s *issuersStory) expectEnforced(ctx context.Context) {
	GinkgoHelper()
	for _, welcome := range []*visitor{s.ofUser(ctx, alice), s.ofBot(ctx, "")} {
		Expect(welcome.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		Expect(welcome.send(ctx, accessEcho)).To(Equal(http.StatusOK))
		Expect(welcome.send(ctx, accessPID)).To(Equal(http.StatusForbidden))
	}
	Expect(s.ofUser(ctx, bob).send(ctx, accessInitialize)).To(Equal(http.StatusForbidden))
	Expect(visitorOf(s.server, "").send(ctx, accessInitialize)).To(Equal(http.StatusUnauthorized))
}

// expectNewKey expects that a token counts in time whose key the issuer has just begun to use.
func (s *issuersStory) expectNewKey(ctx context.Context, newcomer *visitor) {
	GinkgoHelper()
	shown := time.Now()
	Expect(newcomer.send(ctx, accessInitialize)).To(Equal(http.StatusServiceUnavailable), "a new login would not help")
	Expect(newcomer.header.Get("Retry-After")).To(Equal("5"))
	Eventually(func() (int, error) {
		status := newcomer.send(ctx, accessInitialize)
		if status != http.StatusOK && status != http.StatusServiceUnavailable && time.Since(shown) < adapterPatience {
			return status, StopTrying("the token is refused")
		}
		return status, nil
	}).WithContext(ctx).WithTimeout(time.Until(shown) + promise.NewKey).WithPolling(100 * time.Millisecond).Should(Equal(http.StatusOK))
	AddReportEntry("until a new key counts", time.Since(shown).Round(time.Millisecond).String())
	Expect(newcomer.send(ctx, accessEcho)).To(Equal(http.StatusOK))
}
