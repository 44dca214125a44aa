; Frames of the trusted path: lengths in host/ipc/src/frame.rs, in words of 64 bits as the code has them.
(set-logic QF_BV)
(define-fun header () (_ BitVec 64) #x0000000000000002)
(define-fun max-frame () (_ BitVec 64) #x0000000000004000)
(define-fun class-1 () (_ BitVec 64) #x0000000000000800)
(define-fun class-2 () (_ BitVec 64) #x0000000000002000)
(define-fun class-3 () (_ BitVec 64) (bvadd header max-frame))
(define-fun largest () (_ BitVec 64) (bvadd header header max-frame))
(define-fun wide ((said (_ BitVec 16))) (_ BitVec 64) ((_ zero_extend 48) said))
(define-fun is-class ((class (_ BitVec 64))) Bool (or (= class class-1) (= class class-2) (= class class-3)))
; `encode_frame`, by the octets of the message: whether there is one, its class, and how long it is.
(define-fun is-encoded ((length (_ BitVec 64))) Bool
  (and (not (= length #x0000000000000000)) (bvule length (bvsub largest (bvadd header header)))
    (bvule (bvadd header length) class-3)))
(define-fun class-of ((length (_ BitVec 64))) (_ BitVec 64)
  (ite (bvule (bvadd header length) class-1) class-1 (ite (bvule (bvadd header length) class-2) class-2 class-3)))
(define-fun frame ((length (_ BitVec 64))) (_ BitVec 64) (bvadd header (class-of length)))
; `FrameReader`: how much is here after so much more has come, and what `take` makes of it, by what the first two octets and the two behind
; say: 0 it waits, 1 no message, 2 a message, if its octets are one.
(define-fun advanced ((filled (_ BitVec 64)) (more (_ BitVec 64))) (_ BitVec 64)
  (let ((sum (ite (bvult (bvadd filled more) filled) #xffffffffffffffff (bvadd filled more))))
    (ite (bvule sum largest) sum largest)))
(define-fun is-message ((class (_ BitVec 64)) (length (_ BitVec 16))) Bool
  (and (bvule header class) (bvule (wide length) (bvsub class header)) (not (= length #x0000))))
(define-fun taken ((filled (_ BitVec 64)) (class (_ BitVec 16)) (length (_ BitVec 16))) (_ BitVec 4)
  (ite (bvult filled header) #x0
    (ite (not (is-class (wide class))) #x1
      (ite (bvult (bvsub filled header) (wide class)) #x0
        (ite (is-message (wide class) length) #x2 #x1)))))
; What is here behind it then.
(define-fun left ((filled (_ BitVec 64)) (class (_ BitVec 16))) (_ BitVec 64) (bvsub filled (bvadd header (wide class))))
; Octets behind the message, which must be zero.
(define-fun behind ((class (_ BitVec 16)) (length (_ BitVec 16))) (_ BitVec 64) (bvsub (bvsub (wide class) header) (wide length)))

(declare-const length (_ BitVec 64))
(declare-const filled (_ BitVec 64))
(declare-const more (_ BitVec 64))
(declare-const said (_ BitVec 16))
(declare-const class (_ BitVec 16))

;; property: a message of every length from 1 to 16,384 has a frame, and no other has
;; broken by: (bvule length (bvsub largest (bvadd header header))) ~> (bvult length (bvsub largest (bvadd header header)))
;; broken by: (not (= length #x0000000000000000)) ~> true
(assert (not (= (is-encoded length) (and (bvule #x0000000000000001 length) (bvule length #x0000000000004000)))))

;; property: its frame is of the least class that has room for it, and its lengths can be said in 16 bits
;; broken by: (ite (bvule (bvadd header length) class-1) class-1 ~> (ite (bvule length class-1) class-1
;; broken by: (ite (bvule (bvadd header length) class-2) class-2 class-3) ~> class-3
(assert (is-encoded length))
(assert (not (and (is-class (class-of length)) (bvule (bvadd header length) (class-of length)) (bvule (class-of length) #x000000000000ffff)
  (=> (bvule (bvadd header length) #x0000000000002000) (bvule (class-of length) #x0000000000002000))
  (=> (bvule (bvadd header length) #x0000000000000800) (bvule (class-of length) #x0000000000000800)))))

;; property: what was encoded is taken whole when all of it is here and not before, and what is behind it is left
;; broken by: (bvult (bvsub filled header) (wide class)) ~> (bvult filled (wide class))
;; broken by: (bvule (wide length) (bvsub class header)) ~> (bvult (wide length) (bvsub class header))
;; broken by: (bvsub filled (bvadd header (wide class))) ~> (bvsub filled (wide class))
(assert (and (is-encoded length) (bvule filled largest)))
(define-fun outcome () (_ BitVec 4) (taken filled ((_ extract 15 0) (class-of length)) ((_ extract 15 0) length)))
(assert (not (and (= outcome (ite (bvule (frame length) filled) #x2 #x0))
  (=> (= outcome #x2) (= (bvadd (left filled ((_ extract 15 0) (class-of length))) (frame length)) filled)))))

;; property: whatever has come, a message that is taken and what is behind it lie within what is here, and nothing goes below zero
;; broken by: (bvule (wide length) (bvsub class header)) ~> (bvule (wide length) class)
;; broken by: (ite (bvult filled header) #x0 ~> (ite false #x0
(assert (= (taken filled class said) #x2))
(assert (not (and (bvule (left filled class) filled) (bvule (behind class said) (wide class)) (bvule (wide class) filled)
  (= (bvadd #x0000000000000004 (wide said) (behind class said) (left filled class)) filled))))

;; property: whatever comes stays within the buffer
;; broken by: (ite (bvult (bvadd filled more) filled) #xffffffffffffffff (bvadd filled more)) ~> (bvadd filled more)
;; broken by: (ite (bvule sum largest) sum largest) ~> sum
(assert (bvule filled largest))
(assert (not (and (bvule (advanced filled more) largest) (bvule filled (advanced filled more)))))

;; property: a full buffer never waits: it has a message or an error
;; broken by: (define-fun largest () (_ BitVec 64) (bvadd header header max-frame)) ~> (define-fun largest () (_ BitVec 64) (bvadd header max-frame))
(assert (= (taken largest class said) #x0))

;; property: an empty message, or one longer than its class, is none
;; broken by: (not (= length #x0000)) ~> true
;; broken by: (or (= class class-1) (= class class-2) (= class class-3)) ~> true
(assert (= (taken filled class said) #x2))
(assert (not (and (bvule #x0001 said) (bvule (bvadd header (wide said)) (wide class))
  (or (= class #x0800) (= class #x2000) (= class #x4002)))))
