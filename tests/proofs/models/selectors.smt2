; Addresses, ranges and selectors: core/esp/src/selector.rs (RFC 4301 4.4.1.1) and core/ike/src/wire/selector.rs (RFC 7296 2.9, 3.13.1).
; An address has 132 bits: 0 for IPv4 or 1 for IPv6, and the number in 128. So they stand in the order that the code's addresses have, every
; IPv4 one before every IPv6 one.
(set-logic QF_BV)
(define-sort Address () (_ BitVec 132))
(define-fun is-v4 ((a Address)) Bool (= ((_ extract 131 128) a) #x0))
(define-fun number ((a Address)) (_ BitVec 128) ((_ extract 127 0) a))
(define-fun v4 ((n (_ BitVec 32))) Address (concat #x0 ((_ zero_extend 96) n)))
(define-fun v6 ((n (_ BitVec 128))) Address (concat #x1 n))
(define-fun is-address ((a Address)) Bool
  (or (= a (v4 ((_ extract 31 0) a))) (= a (v6 (number a)))))
(define-fun higher ((a Address) (b Address)) Address (ite (bvuge b a) b a))
(define-fun lower ((a Address) (b Address)) Address (ite (bvule a b) a b))

; AddressRange: `new`, `contains`, `prefix`.
(define-fun is-range ((first Address) (last Address)) Bool (and (= (is-v4 first) (is-v4 last)) (bvule first last)))
(define-fun contains ((first Address) (last Address) (a Address)) Bool (and (bvule first a) (bvule a last)))
(define-fun has-prefix ((a Address) (length (_ BitVec 8))) Bool (bvule length (ite (is-v4 a) #x20 #x80)))
; `checked_shl` gives nothing for as many bits as there are: no bit is left then, and so says bvshl.
(define-fun mask-v4 ((length (_ BitVec 8))) (_ BitVec 32) (bvshl #xffffffff ((_ zero_extend 24) (bvsub #x20 length))))
(define-fun mask-v6 ((length (_ BitVec 8))) (_ BitVec 128)
  (bvshl #xffffffffffffffffffffffffffffffff ((_ zero_extend 120) (bvsub #x80 length))))
(define-fun prefix-first ((a Address) (length (_ BitVec 8))) Address
  (ite (is-v4 a) (v4 (bvand ((_ extract 31 0) a) (mask-v4 length))) (v6 (bvand (number a) (mask-v6 length)))))
(define-fun prefix-last ((a Address) (length (_ BitVec 8))) Address
  (ite (is-v4 a) (v4 (bvor ((_ extract 31 0) a) (bvnot (mask-v4 length)))) (v6 (bvor (number a) (bvnot (mask-v6 length))))))

; A selector of IKE: protocol, ports, addresses.
(define-sort Selector () (_ BitVec 304))
(define-fun selector ((protocol (_ BitVec 8)) (ports (_ BitVec 32)) (start Address) (end Address)) Selector
  (concat protocol ports start end))
(define-fun protocol ((s Selector)) (_ BitVec 8) ((_ extract 303 296) s))
(define-fun ports ((s Selector)) (_ BitVec 32) ((_ extract 295 264) s))
(define-fun start ((s Selector)) Address ((_ extract 263 132) s))
(define-fun end ((s Selector)) Address ((_ extract 131 0) s))
(define-fun port-first ((p (_ BitVec 32))) (_ BitVec 16) ((_ extract 31 16) p))
(define-fun port-last ((p (_ BitVec 32))) (_ BitVec 16) ((_ extract 15 0) p))
(define-fun any () (_ BitVec 32) #x0000ffff)
(define-fun opaque () (_ BitVec 32) #xffff0000)
; `new`.
(define-fun is-selector ((ports (_ BitVec 32)) (start Address) (end Address)) Bool
  (and (= (is-v4 start) (is-v4 end)) (bvule start end) (or (bvule (port-first ports) (port-last ports)) (= ports opaque))))
(define-fun made ((protocol (_ BitVec 8)) (ports (_ BitVec 32)) (start Address) (end Address)) Selector
  (selector protocol (ite (= protocol #x00) any ports) start end))
; `subnet`.
(define-fun host-v4 ((length (_ BitVec 8))) (_ BitVec 32) (bvlshr #xffffffff ((_ zero_extend 24) length)))
(define-fun host-v6 ((length (_ BitVec 8))) (_ BitVec 128) (bvlshr #xffffffffffffffffffffffffffffffff ((_ zero_extend 120) length)))
(define-fun subnet-start ((a Address) (length (_ BitVec 8))) Address
  (ite (is-v4 a) (v4 (bvand ((_ extract 31 0) a) (bvnot (host-v4 length)))) (v6 (bvand (number a) (bvnot (host-v6 length))))))
(define-fun subnet-end ((a Address) (length (_ BitVec 8))) Address
  (ite (is-v4 a) (v4 (bvor ((_ extract 31 0) a) (host-v4 length))) (v6 (bvor (number a) (host-v6 length)))))
; `intersect`: whether there is one, and it.
(define-fun have-protocol ((a Selector) (b Selector)) Bool
  (or (= (protocol a) (protocol b)) (= (protocol a) #x00) (= (protocol b) #x00)))
(define-fun both-protocol ((a Selector) (b Selector)) (_ BitVec 8)
  (ite (= (protocol a) (protocol b)) (protocol a) (ite (= (protocol a) #x00) (protocol b) (protocol a))))
(define-fun most ((a (_ BitVec 16)) (b (_ BitVec 16))) (_ BitVec 16) (ite (bvuge b a) b a))
(define-fun least ((a (_ BitVec 16)) (b (_ BitVec 16))) (_ BitVec 16) (ite (bvule a b) a b))
(define-fun narrowed ((a (_ BitVec 32)) (b (_ BitVec 32))) (_ BitVec 32)
  (concat (most (port-first a) (port-first b)) (least (port-last a) (port-last b))))
(define-fun have-ports ((a (_ BitVec 32)) (b (_ BitVec 32))) Bool
  (or (= a b) (= a any) (= b any)
    (and (not (or (= a opaque) (= b opaque))) (bvule (port-first (narrowed a b)) (port-last (narrowed a b))))))
(define-fun both-ports ((a (_ BitVec 32)) (b (_ BitVec 32))) (_ BitVec 32)
  (ite (= a b) a (ite (= a any) b (ite (= b any) a (narrowed a b)))))
(define-fun intersect ((a Selector) (b Selector)) Selector
  (selector (both-protocol a b) (both-ports (ports a) (ports b)) (higher (start a) (start b)) (lower (end a) (end b))))
(define-fun is-intersect ((a Selector) (b Selector)) Bool
  (and (= (is-v4 (start a)) (is-v4 (start b))) (have-protocol a b) (have-ports (ports a) (ports b))
    (bvule (start (intersect a b)) (end (intersect a b)))))
(define-fun is-within ((a Selector) (b Selector)) Bool (and (is-intersect a b) (= (intersect a b) a)))

; A row of ESP and a packet: `matches`. 3 freely, 2 by its ports, 1 by what its first fragment had, 0 not at all.
(define-sort Packet () (_ BitVec 312))
(define-fun packet ((source Address) (destination Address) (protocol (_ BitVec 8)) (ports (_ BitVec 32)) (has-ports Bool) (is-later Bool)) Packet
  (concat source destination protocol ports (ite has-ports #x1 #x0) (ite is-later #x1 #x0)))
(define-fun source ((p Packet)) Address ((_ extract 311 180) p))
(define-fun destination ((p Packet)) Address ((_ extract 179 48) p))
(define-fun packet-protocol ((p Packet)) (_ BitVec 8) ((_ extract 47 40) p))
(define-fun source-port ((p Packet)) (_ BitVec 16) ((_ extract 39 24) p))
(define-fun destination-port ((p Packet)) (_ BitVec 16) ((_ extract 23 8) p))
(define-fun has-ports ((p Packet)) Bool (= ((_ extract 7 4) p) #x1))
(define-fun is-later ((p Packet)) Bool (= ((_ extract 3 0) p) #x1))
(define-fun port-within ((range (_ BitVec 32)) (port (_ BitVec 16))) Bool
  (and (bvule (port-first range) port) (bvule port (port-last range))))
(define-fun verdict ((local-first Address) (local-last Address) (remote-first Address) (remote-last Address)
    (for-all Bool) (protocol (_ BitVec 8)) (local-ports (_ BitVec 32)) (remote-ports (_ BitVec 32)) (p Packet) (in Bool)) (_ BitVec 4)
  (ite (or (not (contains local-first local-last (ite in (destination p) (source p))))
      (not (contains remote-first remote-last (ite in (source p) (destination p))))
      (not (or for-all (= protocol (packet-protocol p))))) #x0
    (ite (and (= local-ports any) (= remote-ports any)) #x3
      (ite (has-ports p)
        (ite (and (port-within local-ports (ite in (destination-port p) (source-port p)))
          (port-within remote-ports (ite in (source-port p) (destination-port p)))) #x2 #x0)
        (ite (is-later p) #x1 #x0)))))

; What a selector of IKE lets pass, by the sentences of RFC 7296 3.13.1: OPAQUE is for packets whose ports nobody sees, ANY for these too.
(define-fun passes ((s Selector) (of (_ BitVec 8)) (seen Bool) (port (_ BitVec 16)) (a Address)) Bool
  (and (or (= (protocol s) #x00) (= (protocol s) of))
    (or (= (ports s) any) (ite seen (port-within (ports s) port) (= (ports s) opaque)))
    (bvule (start s) a) (bvule a (end s))))
(define-fun is-sound ((s Selector)) Bool
  (and (is-selector (ports s) (start s) (end s)) (=> (= (protocol s) #x00) (= (ports s) any))
    (is-address (start s)) (is-address (end s))))
(declare-const a Selector)
(declare-const b Selector)
(declare-const p Packet)
(declare-const of (_ BitVec 8))
(declare-const seen Bool)
(declare-const port (_ BitVec 16))
(declare-const at Address)
(declare-const to Address)
(declare-const length (_ BitVec 8))
(define-fun passes-both () Bool (and (passes a of seen port at) (passes b of seen port at)))

;; property: a range has the addresses of one family from the first to the last
;; broken by: (and (= (is-v4 first) (is-v4 last)) (bvule first last)) ~> (bvule first last)
;; broken by: (and (bvule first a) (bvule a last)) ~> (and (bvule first a) (bvult a last))
(declare-const first Address)
(declare-const last Address)
(assert (and (is-address first) (is-address last) (is-address at) (is-range first last)))
(assert (not (= (contains first last at)
  (and (= (is-v4 at) (is-v4 first)) (= (is-v4 at) (is-v4 last)) (bvule (number first) (number at)) (bvule (number at) (number last))))))

;; property: a prefix is a range, of the addresses whose first bits are the same
;; broken by: (bvule length (ite (is-v4 a) #x20 #x80)) ~> (bvule length (ite (is-v4 a) #x20 #x81))
;; broken by: (bvsub #x20 length) ~> (bvsub #x1f length)
;; broken by: (bvor (number a) (bvnot (mask-v6 length))) ~> (number a)
(assert (and (is-address at) (is-address to) (has-prefix at length)))
(define-fun apart () (_ BitVec 128) (bvxor (number at) (number to)))
(define-fun same () Bool (= (bvlshr apart ((_ zero_extend 120) (bvsub (ite (is-v4 at) #x20 #x80) length))) (_ bv0 128)))
(assert (not (and (bvule length (ite (is-v4 at) #x20 #x80)) (is-range (prefix-first at length) (prefix-last at length))
  (= (contains (prefix-first at length) (prefix-last at length) to) (and (= (is-v4 at) (is-v4 to)) same)))))

;; property: a prefix of ESP and a subnet of IKE are the same addresses
;; broken by: (bvlshr #xffffffff ((_ zero_extend 24) length)) ~> (bvlshr #x7fffffff ((_ zero_extend 24) length))
;; broken by: (bvand (number a) (bvnot (host-v6 length))) ~> (number a)
(assert (and (is-address at) (has-prefix at length)))
(assert (not (and (= (prefix-first at length) (subnet-start at length)) (= (prefix-last at length) (subnet-end at length)))))

;; property: what is made a selector is sound: of one family, the right way round, without ports where it is for all protocols
;; broken by: (ite (= protocol #x00) any ports) ~> ports
;; broken by: (and (= (is-v4 start) (is-v4 end)) (bvule start end) ~> (and (bvule start end)
(declare-const given (_ BitVec 32))
(assert (and (is-address at) (is-address to) (is-selector given at to)))
(assert (or (not (is-sound (made of given at to))) (not (= (is-v4 at) (is-v4 to)))))

;; property: what two selectors have in common lets exactly the packets pass that both let pass, and there is nothing in common where none does
;; broken by: (define-fun higher ((a Address) (b Address)) Address (ite (bvuge b a) b a)) ~> (define-fun higher ((a Address) (b Address)) Address a)
;; broken by: (least (port-last a) (port-last b)) ~> (most (port-last a) (port-last b))
;; broken by: (or (= (protocol a) (protocol b)) (= (protocol a) #x00) (= (protocol b) #x00)) ~> true
;; broken by: (ite (= (protocol a) #x00) (protocol b) (protocol a))) ~> #x00)
;; broken by: (or (= a b) (= a any) (= b any) ~> (or (= a b)
;; broken by: (bvule (port-first (narrowed a b)) (port-last (narrowed a b))) ~> (or (= (narrowed a b) opaque) (bvule (port-first (narrowed a b)) (port-last (narrowed a b))))
(assert (and (is-sound a) (is-sound b) (is-address at)))
(assert (not (= passes-both (and (is-intersect a b) (passes (intersect a b) of seen port at)))))

;; property: what they have in common is sound, and the same whichever is asked first
;; broken by: (bvule (start (intersect a b)) (end (intersect a b))) ~> true
(assert (and (is-sound a) (is-sound b)))
(assert (not (and (= (is-intersect a b) (is-intersect b a))
  (=> (is-intersect a b) (and (is-sound (intersect a b)) (= (intersect a b) (intersect b a)))))))

;; property: a selector within another lets nothing pass that the other does not
;; broken by: (and (is-intersect a b) (= (intersect a b) a)) ~> (is-intersect a b)
(assert (and (is-sound a) (is-sound b) (is-address at) (is-within a b)))
(assert (and (passes a of seen port at) (not (passes b of seen port at))))

;; property: and one that is not within another lets something pass that the other does not: a packet at one of its ends
;; broken by: (and (is-intersect a b) (= (intersect a b) a)) ~> (= a b)
(assert (and (is-sound a) (is-sound b) (not (is-within a b))))
(define-fun lost ((of (_ BitVec 8)) (seen Bool) (port (_ BitVec 16)) (at Address)) Bool
  (and (passes a of seen port at) (not (passes b of seen port at))))
(define-fun lost-at ((of (_ BitVec 8)) (at Address)) Bool
  (or (lost of true (port-first (ports a)) at) (lost of true (port-last (ports a)) at) (lost of false #x0000 at)))
(define-fun lost-by ((of (_ BitVec 8))) Bool (or (lost-at of (start a)) (lost-at of (end a))))
(assert (not (or (lost-by (protocol a)) (lost-by (bvadd (protocol b) #x01)))))

;; property: a row of ESP lets an answer pass as it lets what is answered pass
;; broken by: (contains remote-first remote-last (ite in (source p) (destination p))) ~> (contains remote-first remote-last (source p))
;; broken by: (port-within local-ports (ite in (destination-port p) (source-port p))) ~> (port-within local-ports (source-port p))
(declare-const local-first Address)
(declare-const local-last Address)
(declare-const remote-first Address)
(declare-const remote-last Address)
(declare-const for-all Bool)
(declare-const local-ports (_ BitVec 32))
(declare-const remote-ports (_ BitVec 32))
(define-fun answer () Packet (packet (destination p) (source p) (packet-protocol p)
  (concat (destination-port p) (source-port p)) (has-ports p) (is-later p)))
(define-fun said ((p Packet) (in Bool)) (_ BitVec 4)
  (verdict local-first local-last remote-first remote-last for-all of local-ports remote-ports p in))
(assert (not (= (said p false) (said answer true))))

;; property: a row of ESP lets no packet pass but between its addresses, of its protocol, and with its ports or as a later fragment
;; broken by: (not (or for-all (= protocol (packet-protocol p)))) ~> false
;; broken by: (ite (and (= local-ports any) (= remote-ports any)) #x3 ~> (ite (= local-ports any) #x3
;; broken by: (ite (is-later p) #x1 #x0) ~> #x1
(declare-const local-first Address)
(declare-const local-last Address)
(declare-const remote-first Address)
(declare-const remote-last Address)
(declare-const for-all Bool)
(declare-const local-ports (_ BitVec 32))
(declare-const remote-ports (_ BitVec 32))
(define-fun within ((range (_ BitVec 32)) (port (_ BitVec 16))) Bool
  (or (= range any) (and (has-ports p) (port-within range port)) (and (not (has-ports p)) (is-later p))))
(assert (not (= #x0 (verdict local-first local-last remote-first remote-last for-all of local-ports remote-ports p false))))
(assert (not (and (contains local-first local-last (source p)) (contains remote-first remote-last (destination p))
  (or for-all (= of (packet-protocol p)))
  (within local-ports (source-port p)) (within remote-ports (destination-port p)))))

;; property: a row of ESP that has more lets no less pass
;; broken by: (or for-all (= protocol (packet-protocol p))) ~> (= for-all (= protocol (packet-protocol p)))
;; broken by: (ite (and (= local-ports any) (= remote-ports any)) #x3 ~> (ite (and (= local-ports any) (= remote-ports any)) #x0
(declare-const local-first Address)
(declare-const local-last Address)
(declare-const remote-first Address)
(declare-const remote-last Address)
(declare-const more-first Address)
(declare-const more-last Address)
(declare-const for-all Bool)
(declare-const for-more Bool)
(declare-const local-ports (_ BitVec 32))
(declare-const more-ports (_ BitVec 32))
(declare-const remote-ports (_ BitVec 32))
(declare-const in Bool)
(assert (and (bvule more-first local-first) (bvule local-last more-last) (=> for-all for-more)))
(assert (and (bvule (port-first more-ports) (port-first local-ports)) (bvule (port-last local-ports) (port-last more-ports))))
(assert (not (= #x0 (verdict local-first local-last remote-first remote-last for-all of local-ports remote-ports p in))))
(assert (= #x0 (verdict more-first more-last remote-first remote-last for-more of more-ports remote-ports p in)))
