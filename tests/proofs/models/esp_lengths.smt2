; Lengths of ESP: core/esp/src/sa.rs (RFC 4303 2.4), aggfrag/mod.rs (RFC 9347 2.2.1), toobig.rs, in words of 64 bits as the code has them.
(set-logic QF_BV)
(define-fun esp-header () (_ BitVec 64) #x0000000000000010)
(define-fun tag () (_ BitVec 64) #x0000000000000010)
(define-fun up-to-four ((n (_ BitVec 64))) (_ BitVec 64)
  (ite (= ((_ extract 1 0) n) #b00) n (bvadd n (bvsub #x0000000000000004 ((_ zero_extend 62) ((_ extract 1 0) n))))))
; `sealed_length`.
(define-fun sealed-length ((inner (_ BitVec 64))) (_ BitVec 64)
  (bvadd (bvadd esp-header (up-to-four (bvadd inner #x0000000000000002))) tag))
; `seal`: what is encrypted, and octets of padding in it.
(define-fun text ((inner (_ BitVec 64))) (_ BitVec 64) (bvsub (bvsub (sealed-length inner) esp-header) tag))
(define-fun padding ((inner (_ BitVec 64))) (_ BitVec 64) (bvsub (bvsub (text inner) inner) #x0000000000000002))
; `open`, of a buffer and where in it the datagram begins: whether it is long enough and ends on a boundary, and what is encrypted.
(define-fun opened ((buffer (_ BitVec 64)) (from (_ BitVec 64))) (_ BitVec 64) (bvsub buffer (bvadd from esp-header tag)))
(define-fun is-open ((buffer (_ BitVec 64)) (from (_ BitVec 64))) Bool
  (and (bvule from buffer) (bvule esp-header (bvsub buffer from))
    (bvule (bvadd from esp-header tag) buffer)
    (not (or (bvult (opened buffer from) #x0000000000000004) (not (= ((_ extract 1 0) (opened buffer from)) #b00))))))
; And what is left of it without trailer, by the octet that says how much padding there is.
(define-fun is-plain ((text (_ BitVec 64)) (said (_ BitVec 8))) Bool
  (and (bvule #x0000000000000002 text) (bvule ((_ zero_extend 56) said) (bvsub text #x0000000000000002))))
(define-fun plain ((text (_ BitVec 64)) (said (_ BitVec 8))) (_ BitVec 64)
  (bvsub (bvsub text #x0000000000000002) ((_ zero_extend 56) said)))
; `Aggregation::payload`, of a length that a packet may have.
(define-fun shortest () (_ BitVec 16) #x0040)
(define-fun packet ((asked (_ BitVec 16))) (_ BitVec 64) ((_ zero_extend 48) (ite (bvuge asked shortest) asked shortest)))
(define-fun payload ((asked (_ BitVec 16))) (_ BitVec 64)
  (bvadd (bvmul (bvudiv (bvsub (packet asked) (sealed-length #x0000000000000000)) #x0000000000000004) #x0000000000000004) #x0000000000000002))
; `too_big`: how much of a packet is shown to who sent it, behind the headers of the message.
(define-fun lesser ((a (_ BitVec 64)) (b (_ BitVec 64))) (_ BitVec 64) (ite (bvule a b) a b))
(define-fun too-big-v4 ((packet (_ BitVec 64))) (_ BitVec 64)
  (bvadd #x000000000000001c (lesser packet (bvsub #x0000000000000240 #x000000000000001c))))
(define-fun too-big-v6 ((packet (_ BitVec 64))) (_ BitVec 64)
  (bvadd #x0000000000000030 (lesser packet (bvsub #x0000000000000500 #x0000000000000030))))
; The longest inner packets, of core/policy/src/site/vault.rs.
(define-fun inner-mtu () (_ BitVec 16) #x0578)
(define-fun layered-mtu () (_ BitVec 16) #x0500)

; No packet, and no buffer, is as long as half of what there could be in memory.
(define-fun is-length ((n (_ BitVec 64))) Bool (bvult n #x7fffffffffffff00))
(define-fun counted ((n (_ BitVec 64))) (_ BitVec 68) ((_ zero_extend 4) n))
(declare-const inner (_ BitVec 64))
(declare-const buffer (_ BitVec 64))
(declare-const from (_ BitVec 64))
(declare-const said (_ BitVec 8))
(declare-const asked (_ BitVec 16))

;; property: a sealed packet has all of it and its trailer, no more than three octets beside, and does not wrap
;; broken by: (bvadd inner #x0000000000000002) ~> (bvadd inner #x0000000000000001)
;; broken by: (bvsub #x0000000000000004 ((_ zero_extend 62) ~> (bvsub #x0000000000000008 ((_ zero_extend 62)
;; broken by: (define-fun tag () (_ BitVec 64) #x0000000000000010) ~> (define-fun tag () (_ BitVec 64) #x000000000000000c)
;; too much with: (bvult n #x7fffffffffffff00) ~> true
(assert (is-length inner))
(assert (not (and (bvuge (counted (sealed-length inner)) (bvadd (counted inner) #x00000000000000022))
  (bvule (counted (sealed-length inner)) (bvadd (counted inner) #x00000000000000025)))))

;; property: what is encrypted ends on a boundary of four octets, and padding is what is left beside packet and trailer: none to three octets
;; broken by: (ite (= ((_ extract 1 0) n) #b00) n ~> (ite true n
;; broken by: (bvsub (bvsub (text inner) inner) #x0000000000000002) ~> (bvsub (bvsub (text inner) inner) #x0000000000000001)
(assert (is-length inner))
(assert (not (and (= ((_ extract 1 0) (text inner)) #b00) (bvule (padding inner) #x0000000000000003)
  (= (bvadd inner (padding inner) #x0000000000000002) (text inner)))))

;; property: what was sealed is opened as long as it was, wherever in a buffer it lies
;; broken by: (bvult (opened buffer from) #x0000000000000004) ~> (bvult (opened buffer from) #x0000000000000008)
;; broken by: (bvule (bvadd from esp-header tag) buffer) ~> (bvult (bvadd from esp-header tag #x0000000000000004) buffer)
(assert (and (is-length inner) (is-length from) (bvult from #x0000ffffffffffff) (bvult inner #x0000ffffffffffff)))
(assert (= buffer (bvadd from (sealed-length inner))))
(assert (not (and (is-open buffer from) (= (opened buffer from) (text inner))
  (is-plain (text inner) ((_ extract 7 0) (padding inner)))
  (= (plain (text inner) ((_ extract 7 0) (padding inner))) inner))))

;; property: whatever was sent, what is opened lies within the datagram, and nothing goes below zero
;; broken by: (bvule (bvadd from esp-header tag) buffer) ~> true
;; broken by: (bvule ((_ zero_extend 56) said) (bvsub text #x0000000000000002)) ~> (bvule ((_ zero_extend 56) said) text)
(assert (and (is-length buffer) (is-length from) (is-open buffer from) (is-plain (opened buffer from) said)))
(assert (not (and (bvule (bvadd from #x0000000000000020) buffer) (bvule from (bvadd from #x0000000000000020))
  (= (bvadd from #x0000000000000020 (opened buffer from)) buffer)
  (bvule (plain (opened buffer from) said) (opened buffer from))
  (= (bvadd (plain (opened buffer from) said) ((_ zero_extend 56) said) #x0000000000000002) (opened buffer from)))))

;; property: what is opened is no shorter than a trailer, so that there is one to read
;; broken by: (or (bvult (opened buffer from) #x0000000000000004) (not ~> (or false (not
(assert (and (is-length buffer) (is-length from) (is-open buffer from)))
(assert (not (and (is-plain (opened buffer from) #x00) (= ((_ extract 1 0) (opened buffer from)) #b00))))

;; property: the longer packet is no shorter when it is sealed
;; broken by: (bvsub #x0000000000000004 ((_ zero_extend 62) ((_ extract 1 0) n))) ~> #x0000000000000004
(declare-const longer (_ BitVec 64))
(assert (and (is-length longer) (bvule inner longer)))
(assert (not (bvule (sealed-length inner) (sealed-length longer))))

;; property: an aggregate's payload fits the packet that was asked for, and not an octet more would
;; broken by: (ite (bvuge asked shortest) asked shortest) ~> asked
;; broken by: (bvudiv (bvsub (packet asked) (sealed-length #x0000000000000000)) #x0000000000000004) ~> (bvudiv (bvsub (packet asked) #x0000000000000020) #x0000000000000004)
;; broken by: (sealed-length #x0000000000000000)) #x0000000000000004) #x0000000000000004) #x0000000000000002) ~> (sealed-length #x0000000000000000)) #x0000000000000004) #x0000000000000004) #x0000000000000000)
(assert (not (and (bvule (payload asked) (packet asked)) (bvule (sealed-length (payload asked)) (packet asked))
  (bvugt (sealed-length (bvadd (payload asked) #x0000000000000001)) (packet asked)))))

;; property: every inner packet that the tunnel takes is a UDP datagram over IPv6 that 1,500 octets have room for, and where there is a second tunnel 136 of them are left for it
;; broken by: (define-fun inner-mtu () (_ BitVec 16) #x0578) ~> (define-fun inner-mtu () (_ BitVec 16) #x058c)
;; broken by: (define-fun layered-mtu () (_ BitVec 16) #x0500) ~> (define-fun layered-mtu () (_ BitVec 16) #x0578)
(assert (not (and
  (=> (bvule inner ((_ zero_extend 48) inner-mtu)) (bvule (bvadd (sealed-length inner) #x0000000000000030) #x00000000000005dc))
  (=> (bvule inner ((_ zero_extend 48) layered-mtu)) (bvule (bvadd (sealed-length inner) #x00000000000000b8) #x00000000000005dc)))))

;; property: who sent too large a packet is answered within 576 octets over IPv4 and 1,280 over IPv6, with no octet that the packet has not
;; broken by: (lesser packet (bvsub #x0000000000000240 #x000000000000001c)) ~> packet
;; broken by: (lesser packet (bvsub #x0000000000000500 #x0000000000000030)) ~> (lesser packet #x0000000000000500)
(assert (is-length inner))
(assert (not (and (bvule (too-big-v4 inner) #x0000000000000240) (bvule (too-big-v6 inner) #x0000000000000500)
  (bvule (bvsub (too-big-v4 inner) #x000000000000001c) inner) (bvule (bvsub (too-big-v6 inner) #x0000000000000030) inner))))
