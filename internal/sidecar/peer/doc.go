// Package peer passes requests on to the pod that has their session, and says when that pod is gone.
//
// A session lives in one pod, its owner. The session id names the owner, so that every pod of the server
// can reach it without a list of sessions. A request that another pod has passed on is answered where it
// arrives: the handler of the peer port has no Router, so no request passes more than two pods.
package peer
