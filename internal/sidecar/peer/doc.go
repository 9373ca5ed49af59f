// Package peer passes requests on to the pod that has their session, and says when that pod is gone. It also decides
// at which pod a new session begins.
//
// Clients without sessions of a server with sessions have a home in the place of an owner: the pod that their group ranks
// first, by a hash that all pods share.
//
// A session lives in one pod, its owner. The session id names the owner, so that every pod of the server
// can reach it without a list of sessions. A request that another pod has passed on is answered where it
// arrives: the handler of the peer port has no Router and no Placer, so no request passes more than two pods.
//
// A pod that is asked to take a new session takes or refuses it at once, and starts nothing before it has a slot. No
// request that opens a session goes to a second pod once the first one may have begun.
package peer
