; Lengths in messages of IKEv2: core/ike/src/wire/mod.rs, payload.rs and selector.rs (RFC 7296 3.1, 3.2, 3.11, 3.13, 3.14, RFC 7383 2.5), in
; words of 64 bits as the code has them. `left` is how many octets the reader has before it.
(set-logic QF_BV)
(define-fun header () (_ BitVec 64) #x000000000000001c)
(define-fun generic () (_ BitVec 64) #x0000000000000004)
(define-fun wide ((said (_ BitVec 16))) (_ BitVec 64) ((_ zero_extend 48) said))
; `Header::parse`: octets of the datagram, what its header says, whether all else in it is right.
(define-fun is-message ((datagram (_ BitVec 64)) (said (_ BitVec 32))) Bool
  (and (bvule header datagram) (= ((_ zero_extend 32) said) datagram)))
(define-fun body ((datagram (_ BitVec 64))) (_ BitVec 64) (bvsub datagram header))
; `Reader::counted`, behind `head` octets that were read: whether the part is all there, its octets, and what is left behind it.
(define-fun is-counted ((left (_ BitVec 64)) (said (_ BitVec 16)) (head (_ BitVec 64))) Bool
  (and (bvule head (wide said)) (bvule (bvsub (wide said) head) left)))
(define-fun counted ((said (_ BitVec 16)) (head (_ BitVec 64))) (_ BitVec 64) (bvsub (wide said) head))
; One payload of `Fields::parse`: its generic header, then the rest of what it says.
(define-fun is-payload ((left (_ BitVec 64)) (said (_ BitVec 16))) Bool
  (and (bvule generic left) (is-counted (bvsub left generic) said generic)))
(define-fun behind ((left (_ BitVec 64)) (said (_ BitVec 16))) (_ BitVec 64)
  (bvsub (bvsub left generic) (counted said generic)))
(define-fun most-payloads () (_ BitVec 64) #x0000000000000060)
; A chain that ends here.
(define-fun is-end ((left (_ BitVec 64)) (count (_ BitVec 64))) Bool (and (= left #x0000000000000000) (bvule count most-payloads)))
; `shape`: an encrypted payload, and an encrypted fragment, by the octets behind the message's header.
(define-fun is-sealed ((left (_ BitVec 64)) (said (_ BitVec 16))) Bool
  (and (is-payload left said) (= (behind left said) #x0000000000000000)))
(define-fun sealed ((said (_ BitVec 16))) (_ BitVec 64) (counted said generic))
(define-fun is-fragment ((left (_ BitVec 64)) (said (_ BitVec 16)) (number (_ BitVec 16)) (total (_ BitVec 16))) Bool
  (and (is-sealed left said) (bvule #x0000000000000004 (sealed said)) (not (or (= number #x0000) (bvugt number total)))))
(define-fun fragment ((said (_ BitVec 16))) (_ BitVec 64) (bvsub (sealed said) #x0000000000000004))
; `Chain::push`: octets of a body that is written, what is said of them, and how long the chain is then.
(define-fun is-said ((body (_ BitVec 64))) Bool (bvule (bvadd generic body) #x000000000000ffff))
(define-fun said ((body (_ BitVec 64))) (_ BitVec 16) ((_ extract 15 0) (bvadd generic body)))
(define-fun pushed ((chain (_ BitVec 64)) (body (_ BitVec 64))) (_ BitVec 64)
  (ite (is-said body) (bvadd chain generic body) chain))
; `Delete::parse`, by the octets of the payload's body: protocol, octets of an SPI, and how many.
(define-fun is-delete ((body (_ BitVec 64)) (protocol (_ BitVec 8)) (size (_ BitVec 8)) (count (_ BitVec 16))) Bool
  (and (bvule #x0000000000000004 body)
    (ite (and (= protocol #x01) (= size #x00) (= count #x0000)) (= body #x0000000000000004)
      (and (or (= protocol #x02) (= protocol #x03)) (= size #x04)
        (bvule (bvmul (wide count) #x0000000000000004) (bvsub body #x0000000000000004))
        (= (bvsub (bvsub body #x0000000000000004) (bvmul (wide count) #x0000000000000004)) #x0000000000000000)))))
; One traffic selector of `TrafficSelectors::parse`: its kind, and what it says of its length. What it holds is right.
(define-fun fits-kind ((kind (_ BitVec 8)) (said (_ BitVec 16))) Bool
  (ite (= kind #x07) (= (counted said generic) #x000000000000000c)
    (ite (= kind #x08) (= (counted said generic) #x0000000000000024)
      (ite (= kind #x0a) (and (bvult #x0000000000000000 (counted said generic)) (bvule (counted said generic) #x0000000000000400)) true))))
(define-fun is-selector ((left (_ BitVec 64)) (kind (_ BitVec 8)) (said (_ BitVec 16))) Bool
  (and (is-payload left said) (fits-kind kind said)))
(define-fun is-number-of-selectors ((count (_ BitVec 8))) Bool (not (or (= count #x00) (bvugt count #x40))))

; A datagram is what UDP can carry, and in memory; nothing else bounds what the reader has before it.
(declare-const datagram (_ BitVec 64))
(declare-const claim (_ BitVec 32))
(declare-const left (_ BitVec 64))
(declare-const length (_ BitVec 16))
(declare-const total (_ BitVec 64))
(declare-const sum (_ BitVec 64))
(declare-const count (_ BitVec 64))
(declare-const chain (_ BitVec 64))
(declare-const inside (_ BitVec 64))
(define-fun is-length ((n (_ BitVec 64))) Bool (bvult n #x7fffffffffffff00))

;; property: a message is as long as it says, and what is behind its header is within it
;; broken by: (and (bvule header datagram) (= ((_ zero_extend 32) said) datagram)) ~> (= ((_ zero_extend 32) said) datagram)
;; broken by: (= ((_ zero_extend 32) said) datagram) ~> (= ((_ zero_extend 48) ((_ extract 15 0) said)) datagram)
(assert (is-message datagram claim))
(assert (not (and (bvule (body datagram) datagram) (= (bvadd (body datagram) #x000000000000001c) ((_ zero_extend 32) claim)))))

;; property: a part that says its own length lies within what is left, and is not read below zero
;; broken by: (bvule (bvsub (wide said) head) left) ~> (bvule (bvsub (wide said) head) (bvadd left head))
(declare-const head (_ BitVec 64))
(assert (is-counted left length head))
(assert (not (and (bvule head (wide length)) (bvule (counted length head) left) (bvule (counted length head) #x000000000000ffff))))

;; property: after each payload the lengths so far and what is left are the whole chain, so that they never leave the message, and less is left
;; broken by: (and (bvule generic left) (is-counted (bvsub left generic) said generic)) ~> (is-counted (bvsub left generic) said generic)
;; broken by: (is-counted (bvsub left generic) said generic)) ~> (is-counted left said generic))
;; broken by: (bvsub (bvsub left generic) (counted said generic)) ~> (bvsub left (counted said generic))
(assert (and (is-length total) (bvule sum total) (bvule left total) (= (bvadd sum left) total) (is-payload left length)))
(define-fun then () (_ BitVec 64) (bvadd sum (wide length)))
(assert (not (and (bvule sum then) (bvule then total) (bvult (behind left length) left) (= (bvadd then (behind left length)) total))))

;; property: a chain that ends has said its own length, in no more than 96 payloads
;; broken by: (and (= left #x0000000000000000) (bvule count most-payloads)) ~> (bvule count most-payloads)
;; broken by: (bvule count most-payloads) ~> (bvule count #x0000000000000061)
(assert (and (bvule sum total) (bvule left total) (= (bvadd sum left) total) (is-end left count)))
(assert (not (and (= sum total) (bvule count #x0000000000000060))))

;; property: an encrypted payload is all that is left behind the message's header, and so is a fragment with its number, from 1 to the total
;; broken by: (and (is-payload left said) (= (behind left said) #x0000000000000000)) ~> (is-payload left said)
;; broken by: (bvule #x0000000000000004 (sealed said)) ~> (bvule #x0000000000000005 (sealed said))
;; broken by: (or (= number #x0000) (bvugt number total)) ~> (bvugt number total)
;; broken by: (or (= number #x0000) (bvugt number total)) ~> (or (= number #x0000) (bvuge number total))
(declare-const number (_ BitVec 16))
(declare-const of (_ BitVec 16))
(assert (not (and
  (= (is-sealed left length) (and (bvule #x0000000000000004 left) (= (wide length) left)))
  (=> (is-sealed left length) (= (bvadd (sealed length) #x0000000000000004) left))
  (= (is-fragment left length number of)
    (and (is-sealed left length) (bvule #x0000000000000008 left) (bvule #x0001 number) (bvule number of)))
  (=> (is-fragment left length number of) (= (bvadd (fragment length) #x0000000000000008) left)))))

;; property: what is written says its own length in 16 bits and is read again to its end, and what cannot is left out whole
;; broken by: (bvule (bvadd generic body) #x000000000000ffff) ~> (bvule body #x000000000000ffff)
;; broken by: ((_ extract 15 0) (bvadd generic body)) ~> ((_ extract 15 0) body)
;; broken by: (bvadd chain generic body) chain) ~> (bvadd chain generic body) (bvadd chain generic))
(assert (and (is-length left) (bvult inside #x0fffffffffffffff) (bvult chain #x0fffffffffffffff)))
(assert (not (ite (= chain (pushed chain inside)) (bvugt inside #x000000000000fffb)
  (and (is-payload (bvadd (bvsub (pushed chain inside) chain) left) (said inside))
    (= (counted (said inside) #x0000000000000004) inside)
    (= (behind (bvadd (bvsub (pushed chain inside) chain) left) (said inside)) left)))))

;; property: a deletion has room for as many SPIs as it says, and for nothing else
;; broken by: (= size #x04) ~> true
;; broken by: (and (= protocol #x01) (= size #x00) (= count #x0000)) ~> (and (= protocol #x01) (= size #x00))
;; broken by: (= (bvsub (bvsub body #x0000000000000004) (bvmul (wide count) #x0000000000000004)) #x0000000000000000) ~> true
(declare-const protocol (_ BitVec 8))
(declare-const size (_ BitVec 8))
(assert (is-delete left protocol size length))
(assert (not (and (= (bvadd (bvmul (wide length) ((_ zero_extend 56) size)) #x0000000000000004) left)
  (=> (= protocol #x01) (= length #x0000)))))

;; property: a traffic selector lies within what is left, and has 16 octets of IPv4, 40 of IPv6, or a label of at most 1,024
;; broken by: (= (counted said generic) #x000000000000000c) ~> (bvule #x000000000000000c (counted said generic))
;; broken by: (= (counted said generic) #x0000000000000024) ~> (= (counted said generic) #x0000000000000028)
;; broken by: (bvule (counted said generic) #x0000000000000400) ~> true
;; broken by: (bvult #x0000000000000000 (counted said generic)) ~> true
(declare-const kind (_ BitVec 8))
(assert (is-selector left kind length))
(assert (not (and (bvule #x0000000000000004 (wide length)) (bvule (wide length) left) (= (bvadd (behind left length) (wide length)) left)
  (=> (= kind #x07) (= length #x0010)) (=> (= kind #x08) (= length #x0028))
  (=> (= kind #x0a) (and (bvule #x0005 length) (bvule length #x0404))))))

;; property: a payload of traffic selectors has 1 to 64
;; broken by: (or (= count #x00) (bvugt count #x40)) ~> (bvugt count #x40)
;; broken by: (bvugt count #x40) ~> (bvugt count #x41)
(declare-const selectors (_ BitVec 8))
(assert (is-number-of-selectors selectors))
(assert (not (and (bvule #x01 selectors) (bvule selectors #x40))))
